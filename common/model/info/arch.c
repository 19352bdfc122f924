#include "common/model/info/arch.h"

#include <stdio.h>

#include "common/model/gguf/values.h"

struct model_arch_key model_arch_key(struct str arch, const char *name)
{
    struct model_arch_key key;
    snprintf(key.text, sizeof key.text, STR_FMT ".%s", STR_ARG(arch), name);
    return key;
}

enum status model_arch_u64(const struct gguf *g, struct str arch, const char *name, uint64_t min,
                           uint64_t max, uint64_t *out, struct error *err)
{
    return gguf_get_u64(g, model_arch_key(arch, name).text, min, max, out, err);
}

bool model_arch_has_experts(const struct gguf *g, struct str arch)
{
    uint64_t n = 1;
    if (!gguf_find(g, model_arch_key(arch, "expert_count").text))
        return false;
    return model_arch_u64(g, arch, "expert_count", 0, UINT64_MAX, &n, NULL) != STATUS_OK || n > 0;
}
