#pragma once
/* A model as data: a list of operators over a few named buffers, run in order for a batch of rows.
 * A family (families/) writes the list from the model's configuration with the functions of
 * build.h; the loader finds, cuts and packs the weights that the list names; the runner executes it
 * on any backend. Names are static strings; what the loader fills is freed by loader_unload. */
#include "common/model/config/config.h"
#include "kernels/ops.h"
#include "worker/model/cut.h"

/* Activation buffers, [rows][width]; a program says how wide each is on this rank. */
enum reg {
    REG_X, /* the residual stream */
    REG_H,
    REG_Q,
    REG_K,
    REG_V,
    REG_A, /* of the attention */
    REG_GATE,
    REG_UP,
    REG_LATENT, /* MLA: a compressed Q; then Q in the latent's space */
    REG_ROUTER, /* a mixture's logits: float */
    REG_SHARE,  /* and what its shared expert is scaled by */
    REG_E,      /* its result */
    REG_PICKED, /* rows of one expert, and what becomes of them */
    REG_MADE,
    REG_COUNT
};

/* A tensor by its name in each kind of file; the first %u is the layer, the second the expert. */
struct tensor_name {
    const char *hf, *gguf;
};
#define TENSOR_NAME_MAX 128u
/* The name in a file of this format, into out. */
void tensor_name_format(const struct tensor_name *t, enum model_format format, uint32_t layer,
                        uint32_t expert, char out[TENSOR_NAME_MAX]);

/* Where a matrix [n][k] stands in its tensor, when that holds more than it: output i of the matrix
 * is row first + i * step of n_rows, input j column first_in + j of n_columns; of [rows][columns],
 * of [columns][rows] when it is transposed, or of one such for each expert. All zeros: the tensor
 * is the matrix. A bias is such a vector of n_rows, too. */
struct tensor_part {
    uint32_t n_rows, n_columns, first, step, first_in;
    bool transposed, of_experts;
};

/* A matrix [n][k], of which this rank holds outputs n0 .. n0 + n_len and inputs k0 .. k0 + k_len.
 */
struct op_weight {
    struct tensor_name name, bias_name; /* bias_name.hf NULL: no bias */
    uint32_t layer, expert, n_experts;
    uint32_t n, k, n0, n_len, k0, k_len;
    struct tensor_part part;
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
    OP_HEADS,      /* MLA: a small matrix of each head */
    OP_COPY_HEADS, /* a slice of each head */
    OP_ROUTE,
    OP_MOE,
    OP_GATE_ROWS, /* out *= sigmoid(in) */
    OP_ADD_RANKS,
    OP_KIND_COUNT
};

struct op {
    enum op_kind kind;
    uint32_t layer;
    enum reg out, in; /* ADD: out += in. LINEAR: each weight names its own out, as well */
    union {
        struct {
            struct tensor_name name;
            uint32_t n_parts, dim;
            bool plus_one; /* the file holds w - 1 */
            /* Of a vector that the ranks share: its length, 0 for one that is this rank's own;
             * where dim stands in it; and the elements whose squares no other rank counts. */
            uint32_t whole, first, own_first, own;
            float eps; /* 0: the configuration's */
            float *w;  /* [dim], by the loader */
        } norm;
        struct {
            uint32_t first, n; /* of program.weights; 0: this rank has nothing, its part is zeros */
            bool add_ranks;    /* cut by inputs: the ranks' results are added up */
        } linear;
        struct {
            uint32_t i_table, n_heads, head_dim, first; /* of a head's dimensions */
        } rope;
        struct {
            uint32_t window;
            struct tensor_name sinks_name; /* hf NULL: there are none */
            float *sinks;                  /* [heads.q.n], by the loader */
        } attention;
        struct {
            enum activation act;
            uint32_t dim; /* the buffer may be wider: of an MLP and of experts */
        } gated;          /* out = act(out) * in */
        /* Head h of out, of n_out, is the matrix first + h times n_in of in's head. */
        struct {
            uint32_t first, n, in_stride, in_first, out_stride;
        } heads;
        struct {
            uint32_t n, n_heads, in_stride, in_first, out_stride, out_first;
        } copy;
        struct {
            struct tensor_name bias_name; /* hf NULL: there is none */
            float *bias;                  /* [n_experts], by the loader */
        } route;
        struct {
            uint32_t first; /* of program.weights: gate, up and down of each expert of this rank */
        } moe;
    };
};

/* Angles of one kind of rotary embedding. */
struct rope_freqs {
    uint32_t n;  /* pairs: the first 2 n dimensions of a head turn */
    float *inv;  /* [n] */
    float scale; /* of cos and sin */
    bool interleaved;
    const char *gguf_divisors; /* a tensor that divides inv, when the file has it; or NULL */
};

/* The layers of one kind: they share block tables. window 0: they see everything. Every stage has
 * the same groups, perhaps without a layer of its own in one. */
struct kv_layers {
    uint32_t window, n_layers;
    uint32_t most_layers; /* of any stage: all are to have the same number of blocks */
};

#define PROGRAM_MAX_ROPES     4u
#define PROGRAM_MAX_KV_GROUPS 2u
struct program {
    const struct model_config *config; /* borrowed */
    uint32_t tp, rank, max_model_len;
    uint32_t pp, stage;
    uint32_t layer_begin, layer_end;                      /* of this stage */
    struct cut_heads heads;                               /* of this rank */
    struct cut_range inner;                               /* of the MLP's width */
    struct cut_range experts, expert_inner, shared_inner; /* of a mixture */
    uint32_t most_kv_heads; /* of any rank: what the KV cache of each has room for */
    uint32_t widths[REG_COUNT];
    struct op *ops;
    uint32_t n_ops, ops_cap;
    struct op_weight *weights;
    uint32_t n_weights, weights_cap;
    uint32_t i_embedding, i_head; /* of weights; the same when they are tied and both are here */
    float embed_scale;
    struct op final_norm;
    struct rope_freqs ropes[PROGRAM_MAX_ROPES];
    uint32_t n_ropes;
    uint32_t kv_group_of[MODEL_MAX_LAYERS]; /* of kv_groups */
    struct kv_layers kv_groups[PROGRAM_MAX_KV_GROUPS];
    uint32_t n_kv_groups;
};

/* The first stage has the embedding, the last one the head. */
static inline bool program_is_first(const struct program *p)
{
    return p->stage == 0;
}
static inline bool program_is_last(const struct program *p)
{
    return p->stage + 1 == p->pp;
}

/* Rows of the vocabulary that a rank of the replica has, of the embedding and of the head alike;
 * they begin at a multiple of PROGRAM_VOCAB_UNIT: whole panels of outputs, so that nothing is
 * padded but the end, and every part is aligned to a cache line. */
enum { PROGRAM_VOCAB_UNIT = 16 };
struct cut_range program_vocab_part(const struct program *p, uint32_t rank);
void program_free(struct program *p); /* NULL is fine; not what the loader filled */
