/* Fuzzes safetensors files. A file that opens must be readable in full, without reads outside of
 * it. */
#include <stdlib.h>

#include "common/model/files/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void check(const struct tensor *t, const uint8_t *begin, const uint8_t *end)
{
    uint64_t n = 1, n_bytes;
    if (t->n_dims > TENSOR_MAX_DIMS || t->data < begin || t->data > end ||
        t->n_bytes > (uint64_t)(end - t->data))
        abort();
    for (uint32_t i = 0; i < TENSOR_MAX_DIMS; i++)
        n *= t->shape[i];
    if (t->dtype != DTYPE_OPAQUE &&
        (!dtype_bytes(t->dtype, n, 1, &n_bytes) || n_bytes != t->n_bytes))
        abort();
    if (t->n_bytes)
        sink += t->data[0] + t->data[t->n_bytes - 1];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors *s;
    struct error err = {0};
    if (safetensors_open_memory(data, size, "fuzz", &s, &err) != STATUS_OK) {
        if (s || err.text[0] == '\0')
            abort();
        return 0;
    }
    const uint8_t *at = data + safetensors_header(s).len;
    for (uint64_t i = 0; i < safetensors_n_tensors(s); i++) {
        const struct tensor *t = safetensors_tensor_at(s, i);
        check(t, at, data + size);
        /* the next tensor must begin here or later, because tensors do not overlap */
        at = t->data + t->n_bytes;
        if (safetensors_find(s, t->name.ptr) != t)
            abort();
    }
    safetensors_close(s);
    return 0;
}
