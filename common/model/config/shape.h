#pragma once
/* Describes the shape of a model, from which a family's program is built. config.json and a
 * GGUF's metadata are read into the same fields. Every value is checked, because the files are
 * not trusted. For a value that the files leave out, transformers' default is used. */
#include "common/base/dtype.h"
#include "common/model/info/info.h"

#define MODEL_MAX_LAYERS 1024u
#define MODEL_MAX_ROT    512u /* longrope: most dimensions of a head, half as many factors */

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
    double factor; /* stretch factor of linear, dynamic, llama3, yarn */
    /* llama3 only: bounds of the frequencies that are stretched in part */
    double low_freq_factor, high_freq_factor;
    double original_max_len;     /* length of the model before it was stretched */
    double beta_fast, beta_slow; /* yarn; `truncate` rounds its bounds to whole numbers */
    bool truncate;
    double attention_factor; /* yarn, longrope: factor of cos and sin; 0 = 1 */
    /* longrope: factors for short and for long sequences, one for each pair of dimensions */
    float short_factors[MODEL_MAX_ROT / 2], long_factors[MODEL_MAX_ROT / 2];
};

enum model_activation { MODEL_SILU, MODEL_GELU_TANH, MODEL_ACTIVATION_COUNT };

/* `quant_method` is the format of quantised weights. The files show which tensors are quantised. */
enum quant_method {
    QUANT_NONE,
    QUANT_AWQ,
    QUANT_GPTQ,
    QUANT_FP8,
    QUANT_MXFP4,
    QUANT_COMPRESSED /* compressed-tensors with integers; with FP8 it is QUANT_FP8 */
};
/* `quant_at_load` is the format into which plain weights are converted when they are loaded
 * (--quantization). */
enum quant_at_load {
    QUANT_AT_LOAD_NONE,
    QUANT_AT_LOAD_INT8,
    QUANT_AT_LOAD_INT4,
    QUANT_AT_LOAD_FP8
};
struct quant_config {
    enum quant_method method;
    /* format chosen by --quantization; set by the loader and not by the file */
    enum quant_at_load at_load;
    uint32_t bits; /* AWQ, GPTQ, COMPRESSED: bits of a weight */
    /* true = GPTQ version 2, whose stored zero points are not reduced by one */
    bool zeros_are_whole;
    uint32_t group; /* AWQ, GPTQ: number of inputs that share a scale; 0 = all */
    /* FP8: size of a scale's block; 0 = one scale a tensor or an output */
    uint32_t block_rows, block_columns;
};

/* `moe_scores` is the way in which a mixture of experts scores its experts. A router gives each
 * token a weighted choice of experts. */
enum moe_scores {
    MOE_SOFTMAX,           /* softmax over all experts */
    MOE_SOFTMAX_OF_CHOSEN, /* softmax over the logits of the chosen experts */
    MOE_SIGMOID            /* sigmoid of each logit */
};
struct moe_config {
    uint32_t n_experts;    /* number of experts of a layer; 0 = no experts */
    uint32_t n_chosen;     /* number of experts that each token uses */
    uint32_t width;        /* inner width of one expert */
    uint32_t shared_width; /* width of the expert that every token uses; 0 = none */
    /* groups of experts, and groups from which experts are chosen; 0 = choose from all */
    uint32_t n_groups, n_groups_chosen;
    enum moe_scores scores;
    /* true = a group's score is the sum of its two best experts, not its best expert */
    bool groups_by_two;
    bool normalise; /* true = the chosen experts' shares are scaled to the sum 1, before `factor` */
    bool choice_bias; /* true = a bias is added to the scores, but only for the choice of experts */
    bool router_bias, shared_gate;
    float factor; /* factor of the chosen experts' shares */
    uint8_t layer_has[MODEL_MAX_LAYERS];
};

/* `mla_config` describes multi-head latent attention (DeepSeek-AI 2024). A head has nope + rope
 * dimensions, and values of v. Keys and values of all heads are computed from one vector of
 * kv_rank numbers. A rotated key of `rope` numbers is stored beside that vector. */
struct mla_config {
    uint32_t q_rank;  /* size of the compressed Q; 0 = Q is not compressed */
    uint32_t kv_rank; /* size of the compressed keys and values; 0 = another kind of attention */
    uint32_t nope, rope, v;
    /* true = the GGUF has separate kv_b tensors for keys and values, head by head */
    bool split_kv_b;
};

struct model_config {
    const char *family; /* name of the family, static, from the family table */
    enum model_format format;
    uint32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, intermediate, vocab_size;
    float norm_eps;
    enum model_activation activation;
    /* rotary embeddings of all layers; rope_local is that of window layers (gemma3) */
    struct rope_config rope, rope_local;
    /* factor of the scores: 1 / sqrt(head_dim), or 1 / sqrt(query_pre_attn_scalar) */
    float attention_scale;
    /* caps of the attention scores and of the logits; 0 = no cap */
    float attention_softcap, final_softcap;
    bool sinks;         /* true = each head has an extra score that takes a part of the softmax */
    float swiglu_limit; /* cap of gpt_oss's activation; 0 = another activation */
    struct quant_config quant;
    struct moe_config moe;
    /* latent attention; if used, n_kv_heads is 1 and head_dim that of the latent key */
    struct mla_config mla;
    uint32_t window; /* tokens that a window layer attends to; 0 = no window layers */
    uint8_t layer_is_window[MODEL_MAX_LAYERS];
    bool tied_embedding;
    /* Dtype of the weights that are not quantised, from config.json alone (torch_dtype). The
     * files may have another dtype. DTYPE_OPAQUE = unknown. */
    enum dtype stored_dtype;
    /* true = biases of Q, K and V, of the output projection, and of the MLP */
    bool attention_bias, attention_out_bias, mlp_bias;
};

/* Gives every layer a window, except when (i + 1) is a multiple of full_every. */
void model_config_set_pattern(struct model_config *c, uint32_t full_every);
