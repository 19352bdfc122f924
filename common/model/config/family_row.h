#pragma once
/* Describes one row of family_rows.c: the values of a family's configuration that its files may
 * leave out, and the readers of its special settings. Only common/model/config includes this
 * header. */
#include "common/base/status.h"
#include "common/model/config/shape.h"

enum {
    CONFIG_MAX_HIDDEN = 65536,
    CONFIG_MAX_INTERMEDIATE = 1 << 20,
    CONFIG_MAX_HEADS = 4096,
    CONFIG_MAX_HEAD_DIM = 1024,
    CONFIG_MAX_WINDOW = 1 << 27,
    CONFIG_MAX_EXPERTS = 4096,
    CONFIG_MAX_GROUPS = 256,
};
#define CONFIG_MAX_THETA  1e15
#define CONFIG_MAX_FACTOR 1e6
#define CONFIG_MIN_FACTOR 1e-3

/* `window_rule` decides which layers have a sliding window. */
enum window_rule {
    WINDOWS_NONE,
    WINDOWS_ALL,          /* all layers have a window, if the model has one */
    WINDOWS_LAYERS,       /* the layers of layer_types, or all except each full_every-th layer */
    WINDOWS_IF_USED,      /* use_sliding_window: the layers from max_window_layers on */
    WINDOWS_IF_USED_EVEN, /* use_sliding_window: the even layers below max_window_layers */
    WINDOWS_IF_USED_ALL   /* use_sliding_window: all layers */
};

struct hf_config;
struct gguf_reader;

/* `config_family` holds transformers' defaults for values that config.json leaves out. 0 means
 * that config.json must have the value. The exceptions are n_kv_heads (as many as heads) and
 * head_dim (hidden / heads). */
struct config_family {
    const char *name;
    uint32_t hidden, intermediate, n_layers, n_heads, n_kv_heads, head_dim;
    enum model_activation activation;
    const char *activation_key;
    double norm_eps, theta;
    /* qkv_bias: Q, K and V have biases, and attention_bias is ignored */
    bool tied_embedding, qkv_bias;
    enum window_rule windows;
    /* window in tokens when config.json has no value; a null there means no window */
    uint32_t window;
    uint32_t full_every; /* WINDOWS_LAYERS: each full_every-th layer has no window */
    double local_theta;  /* theta of the window layers' own rotary embedding; 0 = none */
    /* Some families scale scores by this number instead of head_dim (0 = head_dim), and cap
     * scores and logits (0 = no cap). */
    double query_pre_attn_scalar, attention_softcap, final_softcap;
    /* Functions that read a family's special settings, such as experts or latent attention; NULL
     * = none. */
    enum status (*more)(const struct hf_config *c, struct model_config *out, struct error *err);
    enum status (*gguf_more)(const struct gguf_reader *r, struct model_config *out);
    bool latent; /* true = the family uses multi-head latent attention */
    /* Model length before its rotary embedding was stretched, when config.json has no value; 0 =
     * the model's length. */
    uint32_t original_len;
    uint32_t gguf_window; /* window in tokens when a GGUF has no value */
    /* Hidden size of the one model that uses another score scale, which its GGUF does not store. */
    uint32_t gguf_odd_hidden;
};
