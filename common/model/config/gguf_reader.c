#include "common/model/config/gguf_reader.h"

#include "common/model/gguf/values.h"
#include "common/model/info/arch.h"

enum status gguf_reader_u32(const struct gguf_reader *r, const char *name, uint32_t max,
                            uint32_t *out)
{
    uint64_t v = 0;
    TRY(gguf_get_u64(r->g, model_arch_key(r->arch, name).text, 1, max, &v, r->err));
    *out = (uint32_t)v;
    return STATUS_OK;
}

enum status gguf_reader_u32_or(const struct gguf_reader *r, const char *name, uint32_t def,
                               uint32_t max, uint32_t *out)
{
    enum status s = gguf_reader_u32(r, name, max, out);
    if (s != STATUS_NOT_FOUND)
        return s;
    *out = def;
    return STATUS_OK;
}

enum status gguf_reader_count_or(const struct gguf_reader *r, const char *name, uint32_t def,
                                 uint32_t max, uint32_t *out)
{
    uint64_t v = 1;
    enum status s = gguf_get_u64(r->g, model_arch_key(r->arch, name).text, 0, max, &v, r->err);
    if (s != STATUS_OK || v > 0)
        return gguf_reader_u32_or(r, name, def, max, out);
    *out = def;
    return STATUS_OK;
}

enum status gguf_reader_bool_or(const struct gguf_reader *r, const char *name, bool def, bool *out)
{
    enum status s = gguf_get_bool(r->g, model_arch_key(r->arch, name).text, out, r->err);
    if (s != STATUS_NOT_FOUND)
        return s;
    *out = def;
    return STATUS_OK;
}

enum status gguf_reader_positive_or(const struct gguf_reader *r, const char *name, double def,
                                    double max, double *out)
{
    struct model_arch_key key = model_arch_key(r->arch, name);
    *out = def;
    enum status s = gguf_get_f64(r->g, key.text, out, r->err);
    if (s == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (s == STATUS_OK && !(*out > 0 && *out <= max))
        return error_set(r->err, STATUS_INVALID,
                         "%s: %s is %g; it must be greater than 0 and at most %g", gguf_path(r->g),
                         key.text, *out, max);
    return s;
}
