/* Fuzzes GGUF files. A file that opens must be readable in full, without reads outside of it. */
#include <stdlib.h>
#include <string.h>

#include "common/model/gguf/gguf.h"
#include "common/model/gguf/values.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void read_value(const struct gguf *g, const struct gguf_value *v)
{
    char key[64];
    if (v->type == GGUF_STRING)
        sink += str_utf8_valid(v->string);
    if (v->type == GGUF_ARRAY) {
        const uint8_t *cursor = NULL;
        struct str s;
        uint64_t n = 0;
        while (gguf_array_next_str(&v->array, &cursor, &s)) {
            sink += s.len ? (uint8_t)s.ptr[s.len - 1] : 0;
            n++;
        }
        if (v->array.type == GGUF_STRING && n != v->array.n)
            abort();
        for (uint64_t i = 0; i < v->array.n; i++)
            sink += gguf_array_u64(&v->array, i);
    }
    if (v->key.len < sizeof key && !memchr(v->key.ptr, 0, v->key.len)) {
        memcpy(key, v->key.ptr, v->key.len);
        key[v->key.len] = '\0';
        if (gguf_find(g, key) != v)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct error err = {0};
    if (gguf_open_memory(data, size, "fuzz", &g, &err) != STATUS_OK) {
        if (g || err.text[0] == '\0')
            abort();
        return 0;
    }
    for (uint64_t i = 0; i < gguf_n_values(g); i++)
        read_value(g, gguf_value_at(g, i));
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->data < data || t->n_bytes == 0 || t->n_bytes > (uint64_t)(data + size - t->data))
            abort();
        sink += t->data[0] + t->data[t->n_bytes - 1];
    }
    gguf_close(g);
    return 0;
}
