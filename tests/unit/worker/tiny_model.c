/* Writes a tiny llama with random weights: two layers, 4 heads of 8 over 2 KV heads. Two ranks
 * can share it, and four ranks must repeat the keys. The last rank has a smaller part of the
 * vocabulary. `tiny_window_model_write` writes a gemma 3 of the same shape, whose first layer
 * has a window. The tests include this file. */
#include <stdint.h>
#include <stdio.h>

#include "common/base/random.h"
#include "tests/unit/common/model/put_file.c"

enum { TINY_HIDDEN = 32, TINY_LAYERS = 2, TINY_VOCAB = 100, TINY_LENGTH = 128, TINY_WINDOW = 20 };

struct tiny_file {
    struct strbuf header, data;
    struct rng rng;
};

/* Appends a tensor of shape [n][k]. When `k` is 0, the tensor has n elements and holds the
 * weights of a norm. */
static void tiny_tensor(struct tiny_file *f, const char *name, uint32_t n, uint32_t k)
{
    size_t begin = f->data.len;
    char shape[32];
    snprintf(shape, sizeof shape, k ? "%u,%u" : "%u", n, k);
    for (uint32_t i = 0; i < n * (k ? k : 1); i++) {
        float v = (float)rng_below(&f->rng, 2001) / 2000.0f - 0.5f;
        v = k ? v : 1 + v / 2;
        strbuf_append(&f->data, (const char *)&v, sizeof v);
    }
    strbuf_printf(&f->header,
                  "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                  f->header.len ? "," : "{", name, shape, begin, f->data.len);
}

static void tiny_layer(struct tiny_file *f, uint32_t layer, bool window)
{
    static const struct {
        const char *name;
        uint32_t n, k;
    } tensors[] = {
        {"self_attn.q_norm", 8, 0},
        {"self_attn.k_norm", 8, 0},
        {"pre_feedforward_layernorm", TINY_HIDDEN, 0},
        {"post_feedforward_layernorm", TINY_HIDDEN, 0},
        {"input_layernorm", TINY_HIDDEN, 0},
        {"post_attention_layernorm", TINY_HIDDEN, 0},
        {"self_attn.q_proj", 32, TINY_HIDDEN},
        {"self_attn.k_proj", 16, TINY_HIDDEN},
        {"self_attn.v_proj", 16, TINY_HIDDEN},
        {"self_attn.o_proj", TINY_HIDDEN, 32},
        {"mlp.gate_proj", 64, TINY_HIDDEN},
        {"mlp.up_proj", 64, TINY_HIDDEN},
        {"mlp.down_proj", TINY_HIDDEN, 64},
    };
    for (size_t i = window ? 0 : 4; i < sizeof tensors / sizeof tensors[0]; i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.%u.%s.weight", layer, tensors[i].name);
        tiny_tensor(f, name, tensors[i].n, tensors[i].k);
    }
}

struct tiny_shape {
    uint32_t vocab, length;
    bool window;
};

static void tiny_write(const char *folder, uint64_t seed, const struct tiny_shape *shape)
{
    bool window = shape->window;
    struct tiny_file f = {.rng = {seed}};
    struct strbuf file;
    strbuf_init(&f.header, 0);
    strbuf_init(&f.data, 0);
    strbuf_init(&file, 0);
    tiny_tensor(&f, "model.embed_tokens.weight", shape->vocab, TINY_HIDDEN);
    tiny_tensor(&f, "lm_head.weight", shape->vocab, TINY_HIDDEN);
    tiny_tensor(&f, "model.norm.weight", TINY_HIDDEN, 0);
    for (uint32_t i = 0; i < TINY_LAYERS; i++)
        tiny_layer(&f, i, window);
    strbuf_append_c(&f.header, "}");
    uint64_t n = f.header.len;
    strbuf_append(&file, (const char *)&n, sizeof n);
    strbuf_append(&file, f.header.ptr, f.header.len);
    strbuf_append(&file, f.data.ptr, f.data.len);
    put_file(folder, "model.safetensors", strbuf_str(&file));
    strbuf_reset(&file);
    strbuf_printf(&file,
                  "{\"hidden_size\":%d,\"num_attention_heads\":4,"
                  "\"num_key_value_heads\":2,\"num_hidden_layers\":%d,\"intermediate_size\":64,"
                  "\"vocab_size\":%u,\"max_position_embeddings\":%u,\"rms_norm_eps\":1e-5,"
                  "\"rope_theta\":10000,",
                  TINY_HIDDEN, TINY_LAYERS, shape->vocab, shape->length);
    if (window)
        strbuf_printf(&file,
                      "\"model_type\":\"gemma3_text\",\"hidden_activation\":\"gelu_pytorch_tanh\","
                      "\"head_dim\":8,\"query_pre_attn_scalar\":8,\"sliding_window\":%d,"
                      "\"tie_word_embeddings\":false,"
                      "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
                      TINY_WINDOW);
    else
        strbuf_append_c(&file, "\"model_type\":\"llama\",\"hidden_act\":\"silu\"}");
    put_file(folder, "config.json", strbuf_str(&file));
    strbuf_fini(&f.header);
    strbuf_fini(&f.data);
    strbuf_fini(&file);
}

/* Writes config.json and model.safetensors. Another seed makes another model. */
static inline void tiny_model_write(const char *folder, uint64_t seed)
{
    tiny_write(folder, seed, &(struct tiny_shape){TINY_VOCAB, TINY_LENGTH, false});
}

static inline void tiny_window_model_write(const char *folder, uint64_t seed)
{
    tiny_write(folder, seed, &(struct tiny_shape){TINY_VOCAB, TINY_LENGTH, true});
}
