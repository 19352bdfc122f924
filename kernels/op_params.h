#pragma once
/* The arguments of the operators of kernels/ops.h: one struct each, with the math. Arguments were
 * checked at load time: shapes here are right by construction. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/dtype.h"
#include "kernels/weight.h"

/* Rows of activations: row i begins at element i * stride of data. */
struct view {
    void *data;
    uint32_t stride;
};

/* out[i] = scale * row (ids[i] - first) of w, which has the ids first .. first + w->n - 1; zeros
 * for any other id: another rank has it. */
struct embed_params {
    struct view out;
    const struct weight *w;
    const uint32_t *ids; /* [n_rows] */
    uint32_t n_rows, first;
    float scale;
};

/* RMS norm (Zhang & Sennrich 2019) of n_parts vectors of dim elements in each row, side by side:
 * out = x / sqrt(mean(x^2) + eps) * w. out may be x. With sums the vector is a part of one of
 * `whole` elements whose squares were added up elsewhere: mean = sums[row] / whole, n_parts 1. */
struct norm_params {
    struct view out, x;
    const float *w; /* [dim] */
    uint32_t n_rows, n_parts, dim;
    float eps;
    const float *sums; /* [n_rows] or NULL */
    uint32_t whole;
};

/* Up to LINEAR_MAX_PARTS matrices over the same input: out_i = w_i x (+ bias_i). */
#define LINEAR_MAX_PARTS 3
struct linear_part {
    const struct weight *w;
    const float *bias; /* [w->n] or NULL */
    struct view out;
    bool to_float; /* out is float, whatever the device's activations are: logits */
    bool exact;    /* x stays as it is, beside bfloat16 too: a router chooses one or another */
};
struct linear_params {
    struct view x;
    uint32_t n_rows, n_parts;
    struct linear_part parts[LINEAR_MAX_PARTS];
};

/* Rotary embedding (Su et al. 2021) of the first n_rot dimensions of each of n_heads heads, which
 * lie head_dim apart from where x begins. Pairs are (i, i + n_rot / 2), or (2i, 2i + 1) when
 * interleaved. */
struct rope_params {
    struct view x;
    uint32_t n_rows, n_heads, head_dim, n_rot;
    bool interleaved;
    const float *cos_sin; /* [n_rows][n_rot / 2][2], from rope_table */
};
struct rope_table_params {
    const uint32_t *positions; /* [n_rows] */
    uint32_t n_rows, n_freqs;
    const float *inv_freqs; /* [n_freqs]; the angle is position * inv_freq, rounded to float */
    float scale;            /* of cos and sin (YaRN, LongRoPE); 1 otherwise */
    float *out;             /* [n_rows][n_freqs][2] */
};

/* One layer's keys and values: [kv head][token][head_dim] of a block each, block b at b *
 * block_stride bytes, other layers' between them: a block is one piece for all of them. A latent
 * (MLA) is a key whose first v_dim elements are the value: v is k then. F8_E4M3 and I8 are codes:
 * value = scale * code, a scale for each token and KV head (of a latent: for its first v_dim
 * elements, and for the rest) that follows from these alone (kv_layout.h). */
struct kv_cache {
    void *k, *v; /* of block 0 */
    uint64_t block_stride;
    enum dtype dtype; /* F32, F16 (beyond its range: its largest), BF16, F8_E4M3, I8 */
    uint32_t n_kv_heads, head_dim, v_dim, block_tokens; /* v_dim <= head_dim */
    float *k_scales, *v_scales;                         /* of block 0; NULL: no codes */
};
/* A row's sequence in this group: entry i covers positions from (n_dropped + i) * block_tokens. */
struct kv_row {
    const uint32_t *blocks;
    uint32_t n_dropped, position;
};
/* The position of a row that only fills a pass up: nothing is read or written for it. */
#define KV_ROW_NONE UINT32_MAX
struct kv_write_params {
    struct view k, v;          /* [n_rows][n_heads * head_dim]; v: not of a latent */
    const struct kv_row *rows; /* [n_rows] */
    uint32_t n_rows, n_heads;  /* n_heads <= kv->n_kv_heads */
    const struct kv_cache *kv;
};

/* Causal attention of each row over positions first .. rows[i].position of its sequence, where
 * first = window ? max(0, position - window + 1) : 0. The KV of all rows of the call is written
 * already (kv_write): rows may attend to each other's, of one sequence or, in a shared block, of
 * two. Positions behind a row's own are not looked at: a wrong draft token may have left its KV
 * there. Query head h reads KV head (first_in_group + h) / group: a rank's heads may begin and end
 * inside a KV head's group. score = scale * q.k, then softcap * tanh(score / softcap) when softcap
 * > 0. A sink is one more score of a head, whose value is zeros. */
#define ATTENTION_SPLIT 256u
struct attention_params {
    struct view q, out; /* [n_rows][n_heads * head_dim], [n_rows][n_heads * v_dim] */
    const struct kv_row *rows;
    uint32_t n_rows, n_heads, group, first_in_group, window;
    float scale, softcap;
    const float *sinks; /* [n_heads] or NULL */
    const struct kv_cache *kv;
};

/* SWIGLU_LIMITED (gpt_oss): with g = min(gate, limit) and u = up within -limit .. limit,
 * g * sigmoid(1.702 g) * (u + 1). */
enum activation { ACT_SILU, ACT_GELU_TANH, ACT_SWIGLU_LIMITED, ACT_COUNT };
/* out = act(gate) * up, element by element; out may be gate. */
struct gated_params {
    struct view gate, up, out;
    uint32_t n_rows, dim;
    enum activation act;
    float limit;
};

/* Which experts a row goes to, and its share of each: the n_chosen best by score (and bias), the
 * lower number first, of the n_groups_chosen best groups when n_groups > 0. ids ascend. */
enum route_scores {
    ROUTE_SOFTMAX,           /* over all experts */
    ROUTE_SOFTMAX_OF_CHOSEN, /* over the logits of those that are chosen */
    ROUTE_SIGMOID            /* of each logit */
};
#define ROUTE_MAX_GROUPS 256u
struct route_params {
    struct view logits; /* [n_rows][n_experts]; float_logits: float, whatever activations are */
    const float *bias;  /* [n_experts], for the choice alone; or NULL */
    uint32_t n_rows, n_experts, n_chosen, n_groups, n_groups_chosen;
    enum route_scores scores;
    bool groups_by_two;           /* a group's score is the sum of its two best, not its best */
    bool float_logits, normalise; /* normalise: shares add up to one, before the factor */
    float factor;
    uint32_t *ids; /* [n_rows][n_chosen] */
    float *shares;
};

/* out = sum over a row's experts of share * down(act(gate x) * up x), in ascending order of the
 * experts; those that are not here (below first, or from first + n on) are another rank's. */
struct moe_expert {
    const struct weight *gate, *up, *down;
    const float *gate_bias, *up_bias, *down_bias; /* or NULL */
};
struct moe_params {
    struct view x, out; /* [n_rows][dim] */
    uint32_t n_rows, dim, n_chosen, first, n;
    const uint32_t *ids; /* [n_rows][n_chosen] */
    const float *shares;
    const struct moe_expert *experts; /* [n] */
    enum activation act;
    float limit;
    struct view gathered, gate, up, result; /* room for n_rows rows */
    uint32_t *list;                         /* [n_rows] */
    const void *table; /* of the experts, as expert_table made it; or NULL where there is none */
};

/* out[h][0..n) = w_h x[h][0..k): heads in_stride and out_stride apart, matrices of one shape. */
struct heads_params {
    struct view x, out;
    uint32_t n_rows, n_heads, in_stride, out_stride;
    const struct weight *first; /* the shape; data is head 0's */
    const void *table;          /* as head_table made it */
};

/* A slice of each head to another buffer: to[h][i] = from[h][i] for i < n, heads stride apart; the
 * views begin at the first head's slice. */
struct copy_heads_params {
    struct view from, to;
    uint32_t n_rows, n_heads, from_stride, to_stride, n;
};
struct add_params { /* x += y */
    struct view x, y;
    uint32_t n_rows, dim;
};
/* One row of logits, looked at whole. */
struct logits_top {
    uint32_t id; /* of the largest; the lowest id among equals. NaN counts as -inf */
    float best, second;
};
/* As if one had looked at both parts of a row: the lower id among equals. */
static inline void logits_top_merge(struct logits_top *t, struct logits_top other)
{
    if (other.best > t->best || (other.best == t->best && other.id < t->id)) {
        const struct logits_top less = *t;
        *t = other;
        other = less;
    }
    t->second = other.best > t->second ? other.best : t->second;
}
