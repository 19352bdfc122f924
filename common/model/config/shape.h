#pragma once
/* The shape of a model, from which a family's program is built. config.json and a GGUF's
 * metadata are read into the same fields. Every value is checked, because the files are not
 * trusted. Values that they leave out are those that transformers assumes. */
#include "common/base/dtype.h"
#include "common/model/info/info.h"

#define MODEL_MAX_LAYERS 1024u
#define MODEL_MAX_ROT    512u /* longrope: most dimensions of a head with their own factors */

enum rope_scaling {
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_DYNAMIC,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_LONGROPE,
    ROPE_SCALING_COUNT
};
struct rope_config {
    double theta;
    uint32_t n_rot; /* number of a head's first dimensions that are rotated; even */
    enum rope_scaling scaling;
    double factor;                            /* stretch factor of linear, dynamic, llama3, yarn */
    double low_freq_factor, high_freq_factor; /* llama3 only */
    double original_max_len;                  /* length of the model before it was stretched */
    double beta_fast, beta_slow; /* yarn; `truncate` rounds its bounds to whole numbers */
    bool truncate;
    double attention_factor; /* yarn, longrope: factor of cos and sin; 0 = 1 */
    /* longrope: one factor for each pair of dimensions */
    float short_factors[MODEL_MAX_ROT / 2], long_factors[MODEL_MAX_ROT / 2];
};

enum model_activation { MODEL_SILU, MODEL_GELU_TANH, MODEL_ACTIVATION_COUNT };

/* Format of quantised weights. The files show which tensors are quantised. */
enum quant_method {
    QUANT_NONE,
    QUANT_AWQ,
    QUANT_GPTQ,
    QUANT_FP8,
    QUANT_MXFP4,
    QUANT_COMPRESSED /* compressed-tensors with integers; with FP8 it is QUANT_FP8 */
};
/* --quantization: format into which plain weights are converted when they are loaded. */
enum quant_at_load {
    QUANT_AT_LOAD_NONE,
    QUANT_AT_LOAD_INT8,
    QUANT_AT_LOAD_INT4,
    QUANT_AT_LOAD_FP8
};
struct quant_config {
    enum quant_method method;
    enum quant_at_load at_load; /* not from the file; the loader sets it */
    uint32_t bits;              /* AWQ, GPTQ, COMPRESSED: bits of a weight */
    bool zeros_are_whole;       /* GPTQ version 2: stored zero points are not reduced by one */
    uint32_t group;             /* AWQ, GPTQ: number of inputs that share a scale; 0 = all */
    /* FP8: size of a scale's block; 0 = one scale a tensor or an output */
    uint32_t block_rows, block_columns;
};

/* Scores of a mixture of experts: a router gives each token a weighted choice of experts. */
enum moe_scores {
    MOE_SOFTMAX,           /* softmax over all experts */
    MOE_SOFTMAX_OF_CHOSEN, /* softmax over the logits of the chosen experts */
    MOE_SIGMOID            /* sigmoid of each logit */
};
struct moe_config {
    uint32_t n_experts;                 /* 0 = no experts */
    uint32_t n_chosen;                  /* experts used by each token */
    uint32_t width;                     /* inner width of one expert */
    uint32_t shared_width;              /* width of the expert that every token uses; 0 = none */
    uint32_t n_groups, n_groups_chosen; /* experts are chosen from the best groups; 0 = from all */
    enum moe_scores scores;
    bool groups_by_two; /* score of a group: sum of its two best experts, not its best one */
    bool normalise;     /* shares of the chosen experts are scaled to sum 1, before `factor` */
    bool choice_bias;   /* a bias is added to the scores for the choice only */
    bool router_bias, shared_gate;
    float factor; /* factor of the chosen experts' shares */
    uint8_t layer_has[MODEL_MAX_LAYERS];
};

/* Multi-head latent attention (DeepSeek-AI 2024). A head has nope + rope dimensions, and values
 * of v. Keys and values of all heads are computed from one vector of kv_rank numbers; a rotated
 * key of `rope` numbers is stored beside it. */
struct mla_config {
    uint32_t q_rank;  /* 0 = Q is not compressed */
    uint32_t kv_rank; /* 0 = another kind of attention */
    uint32_t nope, rope, v;
    bool split_kv_b; /* GGUF with separate kv_b tensors for keys and values, head by head */
};

struct model_config {
    const char *family; /* static: a name of the family table */
    enum model_format format;
    uint32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, intermediate, vocab_size;
    float norm_eps;
    enum model_activation activation;
    struct rope_config rope, rope_local; /* rope_local: for window layers (gemma3) */
    float attention_scale; /* 1 / sqrt(head_dim), or 1 / sqrt(query_pre_attn_scalar) */
    float attention_softcap, final_softcap; /* 0 = no cap */
    bool sinks;         /* each head has an extra score that takes part of the softmax */
    float swiglu_limit; /* cap of gpt_oss's activation; 0 = another activation */
    struct quant_config quant;
    struct moe_config moe;
    struct mla_config mla; /* if used, n_kv_heads is 1 and head_dim that of the latent key */
    uint32_t window;       /* tokens that a window layer sees; 0 = no window layers */
    uint8_t layer_is_window[MODEL_MAX_LAYERS];
    bool tied_embedding;
    /* Dtype of weights that are not quantised, from config.json alone (torch_dtype); the files
     * may differ. DTYPE_OPAQUE = unknown. */
    enum dtype stored_dtype;
    /* biases of Q, K, V; of the output projection */
    bool attention_bias, attention_out_bias, mlp_bias;
};

/* Gives every layer a window, except when (i + 1) is a multiple of full_every. */
void model_config_set_pattern(struct model_config *c, uint32_t full_every);
