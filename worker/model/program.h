#pragma once
/* Declares a program: a model as a list of operators over a few named buffers, run in order for
 * a batch of rows. A family (families/) writes the list from the model's configuration with the
 * functions of build.h. The loader finds, cuts and packs the weights that the list names. The
 * runner executes the list on any backend. Names are static strings; loader_unload frees what
 * the loader has filled. */
#include "common/model/config/config.h"
#include "kernels/ops.h"
#include "worker/model/cut.h"

/* `reg` names an activation buffer, [rows][width]. The program's `widths` has the width on this
 * rank. */
enum reg {
    REG_X, /* the residual stream */
    REG_H,
    REG_Q,
    REG_K,
    REG_V,
    REG_A, /* output of attention */
    REG_GATE,
    REG_UP,
    REG_LATENT, /* MLA: compressed Q, then Q in the latent space */
    REG_ROUTER, /* logits of a mixture's router; float */
    REG_SHARE,  /* scale of the shared expert */
    REG_E,      /* output of the mixture */
    REG_PICKED, /* input rows of one expert; REG_MADE: its output rows */
    REG_MADE,
    REG_COUNT
};

/* `tensor_name` is a tensor's name in each kind of file. The first %u is the layer, the second
 * the expert. */
struct tensor_name {
    const char *hf, *gguf;
};
#define TENSOR_NAME_MAX 128u
/* Writes to `out` the name that the tensor has in files of `format`. */
void tensor_name_format(const struct tensor_name *t, enum model_format format, uint32_t layer,
                        uint32_t expert, char out[TENSOR_NAME_MAX]);

/* `tensor_part` is the place of a matrix [n][k] in a larger tensor. Output i of the matrix is
 * row first + i * step of n_rows. Input j is column first_in + j of n_columns. The tensor is
 * [rows][columns], or [columns][rows] when transposed, or one of these for each expert. All
 * zeros means that the tensor is the matrix. A bias is a vector of n_rows with the same rows. */
struct tensor_part {
    uint32_t n_rows, n_columns, first, step, first_in;
    bool transposed, of_experts;
};

/* `op_weight` is a matrix [n][k]. This rank holds outputs n0 .. n0 + n_len and inputs k0 .. k0 +
 * k_len. */
struct op_weight {
    struct tensor_name name, bias_name; /* names of matrix and bias; bias_name.hf NULL = no bias */
    uint32_t layer, expert, n_experts;
    uint32_t n, k, n0, n_len, k0, k_len;
    struct tensor_part part;
    enum reg out;
    /* The loader fills in `w` and the next fields. */
    struct weight w;
    float *bias; /* bias of this rank's outputs, [n_len] */
};

enum op_kind {
    OP_NORM,
    OP_LINEAR,
    OP_ROPE,
    OP_KV_WRITE,
    OP_ATTENTION,
    OP_GATED,
    OP_ADD,
    OP_HEADS,      /* MLA: multiplies each head by its own small matrix */
    OP_COPY_HEADS, /* copies a slice of each head */
    OP_ROUTE,
    OP_MOE,
    OP_GATE_ROWS, /* out *= sigmoid(in) */
    OP_ADD_RANKS,
    OP_KIND_COUNT
};

struct op {
    enum op_kind kind;
    uint32_t layer;
    enum reg out, in; /* ADD: out += in; LINEAR: each weight also names its own out */
    union {
        struct {
            struct tensor_name name;
            uint32_t n_parts, dim;
            bool plus_one; /* the file stores w - 1 */
            /* These fields describe a vector that is split over the ranks. `whole` is its length
             * (0 = it is this rank's alone), and `first` is the position of `dim` in it.
             * own_first and own are the elements whose squares only this rank counts. */
            uint32_t whole, first, own_first, own;
            float eps; /* epsilon of the norm; 0 = as in the configuration */
            float *w;  /* [dim] weights; filled by the loader */
        } norm;
        struct {
            /* first: index in program.weights; n: number of weights, 0 = this rank has none and
             * the output is zeros */
            uint32_t first, n;
            bool add_ranks; /* the matrix is cut by inputs, so the ranks' results are added */
        } linear;
        struct {
            /* first: first rotated dimension of a head */
            uint32_t i_table, n_heads, head_dim, first;
        } rope;
        struct {
            uint32_t window;
            struct tensor_name sinks_name; /* name of the sinks; hf NULL = no sinks */
            float *sinks; /* sinks of this rank's heads, [heads.q.n]; filled by the loader */
        } attention;
        struct {
            enum activation act;
            uint32_t dim; /* width; the buffer may be wider (MLPs and experts share it) */
        } gated;          /* out = act(out) * in */
        /* OP_HEADS multiplies head h of `in`, from element in_first on, by matrix `first` + h,
         * and writes it to head h of `out`. */
        struct {
            uint32_t first, n, in_stride, in_first, out_stride;
        } heads;
        struct {
            uint32_t n, n_heads, in_stride, in_first, out_stride, out_first;
        } copy;
        struct {
            struct tensor_name bias_name; /* name of the bias; hf NULL = no bias */
            float *bias; /* bias of the experts, [n_experts]; filled by the loader */
        } route;
        struct {
            /* `first` is the index in program.weights of the first expert's gate; up, down and
             * the rank's other experts follow */
            uint32_t first;
        } moe;
    };
};

/* `rope_freqs` holds the frequencies of one kind of rotary embedding. */
struct rope_freqs {
    uint32_t n;  /* number of pairs: the first 2 n dimensions of a head are rotated */
    float *inv;  /* frequencies, [n] */
    float scale; /* factor of cos and sin */
    bool interleaved;
    const char *gguf_divisors; /* tensor that divides inv, if the file has it; may be NULL */
};

/* `kv_layers` is a KV group: layers that share block tables. window 0 = full attention. Every
 * stage has the same groups, even without a layer of its own in a group. */
struct kv_layers {
    uint32_t window, n_layers;
    /* largest number of the group's layers in a stage; all stages must have the same number of
     * blocks */
    uint32_t most_layers;
};

#define PROGRAM_MAX_ROPES     4u
#define PROGRAM_MAX_KV_GROUPS 2u
struct program {
    const struct model_config *config; /* configuration of the model; borrowed */
    uint32_t tp, rank, max_model_len;
    uint32_t pp, stage;
    uint32_t layer_begin, layer_end;                      /* layers of this stage */
    struct cut_heads heads;                               /* heads of this rank */
    struct cut_range inner;                               /* this rank's part of the MLP's width */
    struct cut_range experts, expert_inner, shared_inner; /* this rank's part of a mixture */
    /* KV heads per layer in every rank's KV cache: the largest number of any rank */
    uint32_t most_kv_heads;
    uint32_t widths[REG_COUNT];
    struct op *ops;
    uint32_t n_ops, ops_cap;
    struct op_weight *weights;
    uint32_t n_weights, weights_cap;
    /* indexes in `weights`; equal when head and embedding are tied and both on this stage */
    uint32_t i_embedding, i_head;
    float embed_scale;
    struct op final_norm;
    struct rope_freqs ropes[PROGRAM_MAX_ROPES];
    uint32_t n_ropes;
    uint32_t kv_group_of[MODEL_MAX_LAYERS]; /* index in kv_groups of each layer's group */
    struct kv_layers kv_groups[PROGRAM_MAX_KV_GROUPS];
    uint32_t n_kv_groups;
};

/* Returns true for the first stage, which has the embedding. The last stage has the head. */
static inline bool program_is_first(const struct program *p)
{
    return p->stage == 0;
}
static inline bool program_is_last(const struct program *p)
{
    return p->stage + 1 == p->pp;
}

/* Returns a rank's rows of the vocabulary, for the embedding and the head. Parts begin at a
 * multiple of PROGRAM_VOCAB_UNIT. Only the end needs padding, and every part is aligned to a
 * cache line. */
enum { PROGRAM_VOCAB_UNIT = 16 };
struct cut_range program_vocab_part(const struct program *p, uint32_t rank);
void program_free(struct program *p); /* frees no memory of the loader; `p` may be NULL */
