/* Fuzzes PyTorch checkpoints. A file that opens must be readable in full, without reads outside
 * of it. Input that is not an archive is read as only the pickle, which a fuzzer then reaches
 * sooner. */
#include <stdlib.h>
#include <string.h>

#include "common/model/files/torch_file.h"
#include "common/model/files/torch_pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void check(const struct torch_file *f, const struct tensor *t)
{
    const uint8_t *begin = (const uint8_t *)torch_file_bytes(f).ptr;
    const uint8_t *end = begin + torch_file_bytes(f).len;
    uint64_t n = 1, n_bytes;
    if (t->n_dims > TENSOR_MAX_DIMS || t->data < begin || t->data > end ||
        t->n_bytes > (uint64_t)(end - t->data) || !torch_file_holds(f, t->name.ptr))
        abort();
    for (uint32_t i = 0; i < TENSOR_MAX_DIMS; i++)
        n *= t->shape[i];
    if (!dtype_bytes(t->dtype, n, 1, &n_bytes) || n_bytes != t->n_bytes)
        abort();
    if (t->n_bytes)
        sink += t->data[0] + t->data[t->n_bytes - 1];
}

static void read_pickle(const uint8_t *data, size_t size)
{
    struct torch_pickle p;
    struct error err = {0};
    if (torch_pickle_read(data, size, "fuzz", &p, &err) != STATUS_OK) {
        if (p.tensors || p.storages || err.text[0] == '\0')
            abort();
        return;
    }
    for (uint64_t i = 0; i < p.n_tensors; i++) {
        const struct torch_tensor *t = &p.tensors[i];
        const struct str *key;
        if (t->n_dims > TORCH_MAX_DIMS || t->storage >= p.n_storages || t->dtype >= DTYPE_COUNT)
            abort();
        key = &p.storages[t->storage].key;
        sink += key->len ? (uint8_t)key->ptr[key->len - 1] : 0;
        sink += t->name.len ? (uint8_t)t->name.ptr[t->name.len - 1] : 0;
    }
    torch_pickle_fini(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct torch_file *f;
    struct error err = {0};
    if (size > 0 && data[0] == 0x80)
        read_pickle(data, size);
    if (torch_file_open_memory(data, size, "fuzz", &f, &err) != STATUS_OK) {
        if (f || err.text[0] == '\0')
            abort();
        return 0;
    }
    for (uint64_t i = 0; i < torch_file_n_tensors(f); i++)
        check(f, torch_file_tensor_at(f, i));
    torch_file_close(f);
    return 0;
}
