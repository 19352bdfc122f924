#pragma once
/* A model as data: a list of operators over a few named buffers, run in order for a batch of rows.
 * A family (worker/families/) writes the list from the model's configuration with the functions of
 * build.h; the loader finds, cuts and packs the weights that the list names; the runner executes it
 * on any backend. Names are static strings; what the loader fills is freed by loader_unload. */
#include "common/model/model_config.h"
#include "kernels/ops.h"

/* Activation buffers, [rows][width]; a program says how wide each is on this rank. */
enum reg { REG_X, REG_H, REG_Q, REG_K, REG_V, REG_A, REG_GATE, REG_UP, REG_COUNT };

/* A tensor by its name in each kind of file; %u is the layer. */
struct tensor_name {
    const char *hf, *gguf;
};
#define TENSOR_NAME_MAX 128u
/* The name in a file of this format, into out. */
void tensor_name_format(const struct tensor_name *t, enum model_format format, uint32_t layer,
                        char out[TENSOR_NAME_MAX]);

/* A matrix [n][k], of which this rank holds outputs n0 .. n0 + n_len and inputs k0 .. k0 + k_len.
 */
struct op_weight {
    struct tensor_name name, bias_name; /* bias_name.hf NULL: no bias */
    uint32_t layer;
    uint32_t n, k, n0, n_len, k0, k_len;
    enum reg out;
    /* by the loader */
    struct weight w;
    float *bias; /* [n_len] */
};

enum op_kind {
    OP_NORM,
    OP_LINEAR,
    OP_ROPE,
    OP_KV_WRITE,
    OP_ATTENTION,
    OP_GATED,
    OP_ADD,
    OP_KIND_COUNT
};

struct op {
    enum op_kind kind;
    uint32_t layer;
    enum reg out, in; /* ADD: out += in. LINEAR: each weight names its own out */
    union {
        struct {
            struct tensor_name name;
            uint32_t n_parts, dim;
            bool plus_one; /* the file holds w - 1 */
            float *w;      /* [dim], by the loader */
        } norm;
        struct {
            uint32_t first, n; /* of program.weights */
            bool add_ranks;    /* cut by inputs: the ranks' results are added up */
        } linear;
        struct {
            uint32_t i_table, n_heads;
        } rope;
        struct {
            uint32_t window;
        } attention;
        enum activation act; /* GATED: out = act(out) * in */
    };
};

/* Angles of one kind of rotary embedding. */
struct rope_freqs {
    uint32_t n;
    float *inv; /* [n] */
    bool interleaved;
    const char *gguf_divisors; /* a tensor that divides inv, when the file has it; or NULL */
};

/* The layers of one kind: they share block tables. window 0: they see everything. */
struct kv_layers {
    uint32_t window, n_layers;
};

/* Rows of the vocabulary that one rank has, of the embedding and of the head alike. */
struct vocab_part {
    uint32_t first, n;
};

#define PROGRAM_MAX_ROPES     4u
#define PROGRAM_MAX_KV_GROUPS 2u
struct program {
    const struct model_config *config; /* borrowed */
    uint32_t tp, rank;
    uint32_t n_heads, n_kv_heads; /* of this rank */
    uint32_t widths[REG_COUNT];
    struct op *ops;
    uint32_t n_ops, ops_cap;
    struct op_weight *weights;
    uint32_t n_weights, weights_cap;
    uint32_t i_embedding, i_head; /* of weights; the same when they are tied */
    uint32_t vocab_per_rank;      /* the last rank may have less: program_vocab_part */
    float embed_scale;
    struct op final_norm;
    struct rope_freqs ropes[PROGRAM_MAX_ROPES];
    uint32_t n_ropes;
    uint32_t kv_group_of[MODEL_MAX_LAYERS]; /* of kv_groups */
    struct kv_layers kv_groups[PROGRAM_MAX_KV_GROUPS];
    uint32_t n_kv_groups;
};

/* Writes the program of config's family for one rank of tp. STATUS_UNSUPPORTED: no such family, or
 * its shape cannot be cut into tp parts. program_free is due after success only. */
MUST_USE enum status program_build(const struct model_config *config, uint32_t tp, uint32_t rank,
                                   struct program **out, struct error *err);
/* Of any rank of the program's group: the parts lie side by side and are the whole vocabulary, and
 * each begins at a multiple of 16. */
struct vocab_part program_vocab_part(const struct program *p, uint32_t rank);
void program_free(struct program *p); /* NULL is fine; not what the loader filled */
