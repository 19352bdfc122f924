#pragma once
/* Declares the arguments of the operators of kernels/ops.h: one struct for each operator, with
 * the math. Arguments are checked at load time, so operators need not check shapes. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/dtype.h"
#include "kernels/weight.h"

/* `view` names rows of activations: row i begins at element i * stride of `data`. */
struct view {
    void *data;
    uint32_t stride;
};

/* out[i] = scale * (row ids[i] - first of w). w has the ids first .. first + w->n - 1; any other
 * id gives zeros, since another rank has that row. */
struct embed_params {
    struct view out;
    const struct weight *w;
    const uint32_t *ids; /* `ids` has the shape [n_rows] */
    uint32_t n_rows, first;
    float scale;
};

/* Computes the RMS norm (Zhang & Sennrich 2019) of n_parts vectors of dim elements in each row,
 * side by side: out = x / sqrt(mean(x^2) + eps) * w. `out` may be x. With `sums`, the vector is
 * a part of a vector with `whole` elements, whose squares were added up elsewhere. Then mean =
 * sums[row] / whole, and n_parts is 1. */
struct norm_params {
    struct view out, x;
    const float *w; /* `w` has the shape [dim] */
    uint32_t n_rows, n_parts, dim;
    float eps;
    const float *sums; /* `sums` has the shape [n_rows], or is NULL */
    uint32_t whole;
};

/* Multiplies up to LINEAR_MAX_PARTS matrices by the same input: out_i = w_i x (+ bias_i). */
#define LINEAR_MAX_PARTS 3
struct linear_part {
    const struct weight *w;
    const float *bias; /* `bias` has the shape [w->n], or is NULL */
    struct view out;
    bool to_float; /* `out` is float for any activation type of the device (logits) */
    bool exact;    /* x is not rounded to bfloat16, since that can change a router's experts */
};
struct linear_params {
    struct view x;
    uint32_t n_rows, n_parts;
    struct linear_part parts[LINEAR_MAX_PARTS];
};

/* Applies rotary embedding (Su et al. 2021) to the first n_rot dimensions of each of n_heads
 * heads, which lie head_dim apart from the start of x. Pairs are (i, i + n_rot / 2), or (2i, 2i
 * + 1) when interleaved. */
struct rope_params {
    struct view x;
    uint32_t n_rows, n_heads, head_dim, n_rot;
    bool interleaved;
    const float *cos_sin; /* `cos_sin` has the shape [n_rows][n_rot / 2][2], made by rope_table */
};
struct rope_table_params {
    const uint32_t *positions; /* `positions` has the shape [n_rows] */
    uint32_t n_rows, n_freqs;
    const float *inv_freqs; /* shape [n_freqs]: angle = position * inv_freq, rounded to float */
    float scale;            /* factor of cos and sin (YaRN, LongRoPE); 1 otherwise */
    float *out;             /* `out` has the shape [n_rows][n_freqs][2] */
};

/* `kv_cache` holds one layer's keys and values: [kv head][token][head_dim] of a block each.
 * Block b begins at b * block_stride bytes. The other layers are in between, so that a block is
 * one piece for all layers. A latent (MLA) is a key whose first v_dim elements are the value, so
 * v equals k. F8_E4M3 and I8 are codes: value = scale * code, with a scale for each token and KV
 * head. A latent has one scale for its first v_dim elements and another for the rest. A scale
 * depends only on its elements (kv_layout.h). */
struct kv_cache {
    void *k, *v; /* data of block 0 */
    uint64_t block_stride;
    enum dtype dtype; /* F32, F16 (saturates beyond its range), BF16, F8_E4M3 or I8 */
    uint32_t n_kv_heads, head_dim, v_dim, block_tokens; /* v_dim <= head_dim */
    float *k_scales, *v_scales; /* scales of block 0; NULL: the cache holds no codes */
};
/* `kv_row` is a row's sequence in this KV group. Entry i of `blocks` covers positions from
 * (n_dropped + i) * block_tokens on. */
struct kv_row {
    const uint32_t *blocks;
    uint32_t n_dropped, position;
};
/* KV_ROW_NONE marks a row that only fills up a pass: nothing is read or written for it. */
#define KV_ROW_NONE UINT32_MAX
struct kv_write_params {
    struct view k, v;          /* shape [n_rows][n_heads * head_dim]; v is not set for a latent */
    const struct kv_row *rows; /* `rows` has the shape [n_rows] */
    uint32_t n_rows, n_heads;  /* n_heads <= kv->n_kv_heads */
    const struct kv_cache *kv;
};

/* Computes causal attention of each row over positions first .. rows[i].position of its
 * sequence, where first = window ? max(0, position - window + 1) : 0. The KV of all rows of the
 * call is already written (kv_write). Rows may attend to each other within one sequence or, in a
 * shared block, across two. Positions behind a row's own are not read, because they may contain
 * the KV of a rejected draft token. Query head h reads KV head (first_in_group + h) / group; a
 * rank's heads may begin or end inside a group. score = scale * q.k, then softcap * tanh(score /
 * softcap) if softcap > 0. A sink is one more score of a head, whose value is zeros. */
#define ATTENTION_SPLIT 256u
struct attention_params {
    struct view q, out; /* q: [n_rows][n_heads * head_dim], out: [n_rows][n_heads * v_dim] */
    const struct kv_row *rows;
    uint32_t n_rows, n_heads, group, first_in_group, window;
    float scale, softcap;
    const float *sinks; /* `sinks` has the shape [n_heads], or is NULL */
    const struct kv_cache *kv;
};

/* SWIGLU_LIMITED (gpt_oss) is g * sigmoid(1.702 g) * (u + 1), with g = min(gate, limit) and u =
 * up limited to -limit .. limit. */
enum activation { ACT_SILU, ACT_GELU_TANH, ACT_SWIGLU_LIMITED, ACT_COUNT };
/* out = act(gate) * up, element by element; `out` may be gate. */
struct gated_params {
    struct view gate, up, out;
    uint32_t n_rows, dim;
    enum activation act;
    float limit;
};

/* Chooses the experts of a row and their shares: the n_chosen best by score (plus bias), and the
 * lower number among equals. If n_groups > 0, the experts are chosen from the n_groups_chosen
 * best groups. ids are in ascending order. */
enum route_scores {
    ROUTE_SOFTMAX,           /* the scores are the softmax over all experts */
    ROUTE_SOFTMAX_OF_CHOSEN, /* the scores are the softmax over the logits of the chosen experts */
    ROUTE_SIGMOID            /* each score is the sigmoid of a logit */
};
#define ROUTE_MAX_GROUPS 256u
struct route_params {
    struct view logits; /* shape [n_rows][n_experts]; float if float_logits, else activations */
    const float *bias;  /* `bias` has the shape [n_experts], used for the choice only; or NULL */
    uint32_t n_rows, n_experts, n_chosen, n_groups, n_groups_chosen;
    enum route_scores scores;
    bool groups_by_two; /* a group's score is the sum of its two best scores, not the best score */
    bool float_logits, normalise; /* normalise: shares add up to one before the factor */
    float factor;
    uint32_t *ids; /* `ids` has the shape [n_rows][n_chosen] */
    float *shares;
};

/* out = sum over a row's experts of share * down(act(gate x) * up x), in ascending order.
 * Experts below `first`, or from first + n on, belong to other ranks and are left out. */
struct moe_expert {
    const struct weight *gate, *up, *down;
    const float *gate_bias, *up_bias, *down_bias; /* biases of the three products, or NULL */
};
struct moe_params {
    struct view x, out; /* `x` and `out` have the shape [n_rows][dim] */
    uint32_t n_rows, dim, n_chosen, first, n;
    const uint32_t *ids; /* `ids` has the shape [n_rows][n_chosen] */
    const float *shares;
    const struct moe_expert *experts; /* `experts` has the shape [n] */
    enum activation act;
    float limit;
    struct view gathered, gate, up, result; /* scratch for n_rows rows */
    uint32_t *list;                         /* `list` has the shape [n_rows] */
    const void *table; /* table made by expert_table; NULL if the device has none */
};

/* out[h][0..n) = w_h x[h][0..k). Heads are in_stride and out_stride apart; all matrices have the
 * same shape. */
struct heads_params {
    struct view x, out;
    uint32_t n_rows, n_heads, in_stride, out_stride;
    const struct weight *first; /* shape of all matrices; `data` is head 0's */
    const void *table;          /* table that head_table made */
};

/* Copies a slice of each head to another buffer: to[h][i] = from[h][i] for i < n, with heads
 * `stride` apart. The views begin at the first head's slice. */
struct copy_heads_params {
    struct view from, to;
    uint32_t n_rows, n_heads, from_stride, to_stride, n;
};
struct add_params { /* computes x += y */
    struct view x, y;
    uint32_t n_rows, dim;
};
/* `logits_top` is the summary of one row of logits. */
struct logits_top {
    uint32_t id; /* id of the largest logit; the lowest among equals; a NaN counts as -inf */
    float best, second;
};
/* Merges the results of two parts of a row; among equal logits, the lower id is kept. */
static inline void logits_top_merge(struct logits_top *t, struct logits_top other)
{
    if (other.best > t->best || (other.best == t->best && other.id < t->id)) {
        const struct logits_top less = *t;
        *t = other;
        other = less;
    }
    t->second = other.best > t->second ? other.best : t->second;
}
