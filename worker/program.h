#pragma once
/* A model as data: a list of operators over a few named buffers, run in order for a batch of rows.
 * A family (worker/families/) writes the list from the model's configuration; the loader finds, cuts
 * and packs the weights that the list names; the runner executes it on any backend. */
#include "common/model/model_config.h"
#include "kernels/ops.h"

/* Activation buffers, [rows][width]; a program says how wide each is on this rank. */
enum reg { REG_X, REG_H, REG_Q, REG_K, REG_V, REG_A, REG_GATE, REG_UP, REG_COUNT };

/* How tensor parallelism cuts a matrix [n][k]: by outputs, by inputs (the results of the ranks are
 * then added), or not at all. */
enum split { SPLIT_NONE, SPLIT_OUTPUTS, SPLIT_INPUTS };

/* A tensor by its name in each kind of file; %u is the layer. gguf NULL: not there. */
struct tensor_name {
    const char *hf, *gguf;
};

struct op_weight {
    struct tensor_name name, bias_name; /* bias hf NULL: none */
    uint32_t n, k;                      /* of the whole matrix, as the file must have it */
    enum split split;
    enum reg out;
    struct weight w; /* by the loader: this rank's part */
    float *bias;
};

enum op_kind {
    OP_EMBED,
    OP_NORM,
    OP_LINEAR,
    OP_ROPE,
    OP_KV_WRITE,
    OP_ATTENTION,
    OP_GATED,
    OP_ADD,
    OP_ALL_REDUCE, /* only with more than one rank */
    OP_KIND_COUNT
};

struct op {
    enum op_kind kind;
    uint16_t layer;
    enum reg out, in; /* ADD: out += in; LINEAR: each weight has its own out */
    uint32_t n_parts, dim;
    union {
        struct {
            struct tensor_name name;
            float *w;      /* by the loader */
            bool plus_one; /* the file holds w - 1 */
        } norm;
        struct {
            uint32_t first_weight; /* n_parts weights from here, in program.weights */
        } linear;
        struct {
            uint32_t i_table; /* program.ropes; n_parts heads of dim */
        } rope;
        struct {
            uint32_t window;
            float scale, softcap;
        } attention;
        enum activation act; /* GATED: out = act(out) * in */
        float scale;         /* EMBED */
    };
};

struct rope_table {
    uint32_t n_freqs;
    float *inv_freqs; /* [n_freqs] */
    bool interleaved;
};

/* Layer → its KV group and its place there. */
struct kv_layer {
    uint32_t i_group, i_in_group;
};

#define PROGRAM_MAX_ROPES     4u
#define PROGRAM_MAX_KV_GROUPS 2u
struct program {
    const struct model_config *config;
    uint32_t tp, rank;
    uint32_t n_heads, n_kv_heads; /* of this rank */
    uint32_t widths[REG_COUNT];
    struct op *ops;
    uint32_t n_ops, ops_cap;
    struct op_weight *weights; /* weights[0]: the embedding; [1]: the head, unless tied */
    uint32_t n_weights, weights_cap;
    uint32_t i_head;
    struct op final_norm;
    struct rope_table ropes[PROGRAM_MAX_ROPES];
    uint32_t n_ropes;
    struct kv_layer kv_layers[MODEL_MAX_LAYERS];
    struct {
        uint32_t window, n_layers; /* window 0: all positions */
    } kv_groups[PROGRAM_MAX_KV_GROUPS];
    uint32_t n_kv_groups;
};
