/* Fuzzes adapter folders. The input has adapter_config.json up to the first NUL, then
 * adapter_model.safetensors. An adapter that opens must have A and B of every module, with the
 * same rank. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/model/lora/adapter.h"
#include "tests/unit/common/model/put_file.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/cox-lora-fuzz-XXXXXX";

static void remove_folder(void)
{
    char path[64];
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    (void)unlink(path);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    (void)unlink(path);
    (void)rmdir(folder);
}

static void check(const struct lora_adapter *a)
{
    for (uint32_t i = 0; i < lora_adapter_n_modules(a); i++) {
        const struct lora_module *m = lora_adapter_module_at(a, i);
        if (m->a->shape[0] != m->rank || m->b->shape[1] != m->rank || m->rank == 0 ||
            !isfinite(m->scale) || lora_adapter_find(a, m->name) != m)
            abort();
        (void)lora_adapter_targets(a, m->name);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool made;
    const uint8_t *nul = memchr(data, 0, size);
    size_t n = nul ? (size_t)(nul - data) : size;
    struct lora_adapter *a;
    struct error err = {0};
    if (!made && (!mkdtemp(folder) || atexit(remove_folder) != 0))
        abort();
    made = true;
    put_file(folder, "adapter_config.json", (struct str){(const char *)data, n});
    put_file(folder, "adapter_model.safetensors",
             (struct str){(const char *)data + n + (nul != NULL), size - n - (nul != NULL)});
    if (lora_adapter_open(folder, NULL, &a, &err) == STATUS_OK)
        check(a);
    else if (a || err.text[0] == '\0')
        abort();
    lora_adapter_close(a);
    return 0;
}
