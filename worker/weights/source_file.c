#include "worker/weights/source_file.h"

#include <stdio.h>
#include <string.h>

#include "kernels/cpu/pack/pack.h"

static void shape_text(const uint64_t *shape, uint32_t n_dims, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (uint32_t i = 0; i < n_dims && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)shape[i]);
    if (used < size)
        (void)snprintf(out + used, size - used, "]");
}

enum status source_check_shape(const struct tensor *t, const char *name, uint32_t n_dims,
                               const uint32_t *want, struct error *err)
{
    bool same = t->n_dims == n_dims;
    uint64_t w[TENSOR_MAX_DIMS] = {0};
    for (uint32_t i = 0; i < n_dims; i++) {
        w[i] = want[i];
        same = same && t->shape[i] == want[i];
    }
    if (same)
        return STATUS_OK;
    char have[128], wanted[128];
    shape_text(t->shape, t->n_dims, have, sizeof have);
    shape_text(w, n_dims, wanted, sizeof wanted);
    return error_set(
        err, STATUS_INVALID,
        "tensor %s has shape %s, but the model's configuration needs %s. Fetch the model again",
        name, have, wanted);
}

enum status source_missing(const char *name, struct error *err)
{
    return error_set(err, STATUS_INVALID,
                     "tensor %s is missing from the model's files. Fetch the model again", name);
}

enum status source_wrong_dtype(const struct tensor *t, const char *name, const char *want,
                               struct error *err)
{
    return error_set(err, STATUS_UNSUPPORTED,
                     "tensor %s is %s, but must be %s. Fetch the model again", name,
                     dtype_traits(t->dtype).name, want);
}

struct beside source_beside(const struct weights *w, const char *name, const char *end)
{
    struct beside b;
    size_t n = strlen(name), cut = n > 7 && strcmp(name + n - 7, ".weight") == 0 ? 7 : 0;
    snprintf(b.name, sizeof b.name, "%.*s%s", (int)(n - cut), name, end);
    b.t = weights_find(w, b.name);
    return b;
}

enum status source_check_beside(const struct beside *b, enum dtype dtype, uint32_t n_dims,
                                const uint32_t *shape, struct error *err)
{
    if (!b->t)
        return source_missing(b->name, err);
    TRY(source_check_shape(b->t, b->name, n_dims, shape, err));
    return b->t->dtype == dtype ? STATUS_OK
                                : source_wrong_dtype(b->t, b->name, dtype_traits(dtype).name, err);
}

bool source_is_plain_float(const struct tensor *t)
{
    return t->dtype == DTYPE_F32 || t->dtype == DTYPE_F16 || t->dtype == DTYPE_BF16;
}

float source_float(const struct tensor *t, uint64_t i)
{
    float value = 0;
    (void)dequantize_row(t->dtype, t->data + i * dtype_traits(t->dtype).block_bytes, 1, &value);
    return value;
}
