#pragma once
/* One row of family_rows.c: the values of a family's configuration that its files may leave out,
 * and the readers of what else they have. Private to common/model/config. */
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

/* The rule that says which layers have a window. */
enum window_rule {
    WINDOWS_NONE,
    WINDOWS_ALL,          /* all, when there is one */
    WINDOWS_LAYERS,       /* layer_types, or a period */
    WINDOWS_IF_USED,      /* use_sliding_window: those from max_window_layers on; */
    WINDOWS_IF_USED_EVEN, /* the even ones below max_window_layers; */
    WINDOWS_IF_USED_ALL   /* all */
};

struct hf_config;
struct gguf_reader;

/* The defaults of transformers for what config.json leaves out; 0: it must be there, but for
 * n_kv_heads (as many as heads) and head_dim (hidden / heads). */
struct config_family {
    const char *name;
    uint32_t hidden, intermediate, n_layers, n_heads, n_kv_heads, head_dim;
    enum model_activation activation;
    const char *activation_key;
    double norm_eps, theta;
    bool tied_embedding, qkv_bias; /* qkv_bias: whatever attention_bias says */
    enum window_rule windows;
    uint32_t window;     /* when config.json does not say; null there is none */
    uint32_t full_every; /* LAYERS: every full_every-th layer sees everything */
    double local_theta;  /* of the window layers' own rotary embedding; 0: they have none */
    /* Some families scale by another number than head_dim (0: not so), and cap. */
    double query_pre_attn_scalar, attention_softcap, final_softcap;
    /* Readers of what else a family has: experts, latent attention, ...; NULL: nothing. */
    enum status (*more)(const struct hf_config *c, struct model_config *out, struct error *err);
    enum status (*gguf_more)(const struct gguf_reader *r, struct model_config *out);
    bool latent;           /* attention through one latent vector */
    uint32_t original_len; /* of a stretched rope, when config.json does not say; 0: the model's */
    uint32_t gguf_window;  /* when a GGUF does not say */
    uint32_t gguf_odd_hidden; /* the size whose GGUF has a scale that nothing in it tells */
};
