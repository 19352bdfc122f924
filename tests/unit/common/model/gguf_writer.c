/* Writes small GGUF files byte by byte, valid or not. The tests include this file. */
#include <stdio.h>
#include <string.h>

#include "common/base/str.h"
#include "common/model/gguf/gguf.h"

static inline void put_bytes(struct strbuf *b, const void *p, size_t n)
{
    if (!strbuf_append(b, p, n))
        __builtin_trap();
}

static inline void put_u32(struct strbuf *b, uint32_t v)
{
    put_bytes(b, &v, sizeof v);
}

static inline void put_u64(struct strbuf *b, uint64_t v)
{
    put_bytes(b, &v, sizeof v);
}

static inline void put_str(struct strbuf *b, const char *s)
{
    put_u64(b, strlen(s));
    put_bytes(b, s, strlen(s));
}

static inline void put_header(struct strbuf *b, uint32_t version, uint64_t n_tensors,
                              uint64_t n_values)
{
    put_bytes(b, "GGUF", 4);
    put_u32(b, version);
    put_u64(b, n_tensors);
    put_u64(b, n_values);
}

static inline void put_key(struct strbuf *b, const char *key, uint32_t type)
{
    put_str(b, key);
    put_u32(b, type);
}

static inline void put_kv_str(struct strbuf *b, const char *key, const char *value)
{
    put_key(b, key, GGUF_STRING);
    put_str(b, value);
}

static inline void put_kv_u32(struct strbuf *b, const char *key, uint32_t value)
{
    put_key(b, key, GGUF_U32);
    put_u32(b, value);
}

static inline void put_kv_strs(struct strbuf *b, const char *key, const char *const *values,
                               uint64_t n)
{
    put_key(b, key, GGUF_ARRAY);
    put_u32(b, GGUF_STRING);
    put_u64(b, n);
    for (uint64_t i = 0; i < n; i++)
        put_str(b, values[i]);
}

static inline void put_tensor(struct strbuf *b, const char *name, uint32_t dtype, uint64_t d0,
                              uint64_t d1, uint64_t offset)
{
    put_str(b, name);
    put_u32(b, 2);
    put_u64(b, d0);
    put_u64(b, d1);
    put_u32(b, dtype);
    put_u64(b, offset);
}

static inline void put_padding(struct strbuf *b, size_t alignment)
{
    while (b->len % alignment != 0)
        put_bytes(b, "", 1);
}

static inline void put_data(struct strbuf *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = (char)(i * 7);
        put_bytes(b, &c, 1);
    }
}

static const char *const writer_tokens[] = {"<pad>", "<eos>",         "<bos>",
                                            "a",     "<end_of_turn>", "<|im_end|>"};

/* Writes a model with one tensor [32, n_rows] in Q8_0 and a vocabulary of six tokens. */
static inline void put_tiny_model(struct strbuf *b, const char *arch, uint32_t max_len,
                                  uint32_t eos, uint64_t n_rows)
{
    char key[64];
    put_header(b, 3, 1, 4);
    put_kv_str(b, "general.architecture", arch);
    snprintf(key, sizeof key, "%s.context_length", arch);
    put_kv_u32(b, key, max_len);
    put_kv_strs(b, "tokenizer.ggml.tokens", writer_tokens, 6);
    put_kv_u32(b, "tokenizer.ggml.eos_token_id", eos);
    put_tensor(b, "token_embd.weight", DTYPE_Q8_0, 32, n_rows, 0);
    put_padding(b, 32);
    put_data(b, 34 * n_rows);
}
