#pragma once
/* The shape of a model: what a family's description is written from. Read from config.json or from
 * a GGUF's metadata, both into the same fields; every value is checked (the file is hostile until
 * then), and what the two leave out has the value that transformers assumes. */
#include "common/base/dtype.h"
#include "common/model/info/info.h"

#define MODEL_MAX_LAYERS 1024u
#define MODEL_MAX_ROT    512u /* dimensions of a head that have factors of their own (longrope) */

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
    uint32_t n_rot; /* the first so many dimensions of a head turn; even */
    enum rope_scaling scaling;
    double factor;                            /* linear, dynamic, llama3, yarn */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original_max_len;                  /* of the model before it was stretched */
    double beta_fast, beta_slow;              /* yarn, and whether its bounds are whole numbers */
    bool truncate;
    double attention_factor; /* of cos and sin: yarn, longrope; 0: 1 */
    float short_factors[MODEL_MAX_ROT / 2], long_factors[MODEL_MAX_ROT / 2]; /* longrope */
};

enum model_activation { MODEL_SILU, MODEL_GELU_TANH, MODEL_ACTIVATION_COUNT };

/* How weights are stored that are not numbers of their own. Which are, the files say. */
enum quant_method {
    QUANT_NONE,
    QUANT_AWQ,
    QUANT_GPTQ,
    QUANT_FP8,
    QUANT_MXFP4,
    QUANT_COMPRESSED /* integers of compressed-tensors; its FP8 is QUANT_FP8 */
};
/* --quantization: what plain numbers are made into when they are loaded. */
enum quant_at_load {
    QUANT_AT_LOAD_NONE,
    QUANT_AT_LOAD_INT8,
    QUANT_AT_LOAD_INT4,
    QUANT_AT_LOAD_FP8
};
struct quant_config {
    enum quant_method method;
    enum quant_at_load at_load;         /* not the file's: set by who loads */
    uint32_t bits;                      /* AWQ, GPTQ, COMPRESSED */
    bool zeros_are_whole;               /* GPTQ: of version 2, where no one is taken off */
    uint32_t group;                     /* AWQ, GPTQ: inputs that share a scale; 0: all */
    uint32_t block_rows, block_columns; /* FP8: of a scale; 0: of the tensor, or of an output */
};

/* A mixture of experts: a router gives each token a share of some of them. */
enum moe_scores {
    MOE_SOFTMAX,           /* over all experts */
    MOE_SOFTMAX_OF_CHOSEN, /* over the logits of those that are chosen */
    MOE_SIGMOID            /* of each logit */
};
struct moe_config {
    uint32_t n_experts;                 /* 0: there are none */
    uint32_t n_chosen;                  /* of each token */
    uint32_t width;                     /* inner, of one expert */
    uint32_t shared_width;              /* of the expert that every token has; 0: none */
    uint32_t n_groups, n_groups_chosen; /* experts are chosen from the best groups; 0: from all */
    enum moe_scores scores;
    bool groups_by_two; /* a group is as good as its two best together, not as its best */
    bool normalise;     /* shares add up to one, before the factor */
    bool choice_bias;   /* added to the scores for the choice alone */
    bool router_bias, shared_gate;
    float factor; /* of the shares */
    uint8_t layer_has[MODEL_MAX_LAYERS];
};

/* Multi-head latent attention (DeepSeek-AI 2024): heads of nope + rope dimensions, values of v;
 * keys and values of all heads come from one vector of kv_rank, beside a rotated key of rope. */
struct mla_config {
    uint32_t q_rank;  /* 0: Q is not compressed */
    uint32_t kv_rank; /* 0: not this kind of attention */
    uint32_t nope, rope, v;
    bool split_kv_b; /* a GGUF that has kv_b's parts for keys and for values apart, head by head */
};

struct model_config {
    const char *family; /* static: a name of the family table */
    enum model_format format;
    uint32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, intermediate, vocab_size;
    float norm_eps;
    enum model_activation activation;
    struct rope_config rope, rope_local;    /* local: the window layers of gemma3 */
    float attention_scale;                  /* 1 / sqrt(head_dim), or of query_pre_attn_scalar */
    float attention_softcap, final_softcap; /* 0: none */
    bool sinks;         /* a score of its own for each head, that takes a share of the softmax */
    float swiglu_limit; /* gpt_oss's activation, capped there; 0: not so */
    struct quant_config quant;
    struct moe_config moe;
    struct mla_config mla; /* then n_kv_heads is 1 and head_dim that of the latent key */
    uint32_t window;       /* of window layers; 0: there are none */
    uint8_t layer_is_window[MODEL_MAX_LAYERS];
    bool tied_embedding;
    /* The dtype of numbers that are stored as they are, by config.json alone (torch_dtype); files
     * may say otherwise. DTYPE_OPAQUE: one that is not known. */
    enum dtype stored_dtype;
    bool attention_bias, attention_out_bias, mlp_bias; /* of Q, K, V; of what follows attention */
};

/* Layer i sees everything when (i + 1) is a multiple of full_every. */
void model_config_set_pattern(struct model_config *c, uint32_t full_every);
