#pragma once
/* The table of operators of struct ops (kernels/ops.h, which says what all of them keep): what a
 * program is written in. Shapes and math are those of kernels/op_params.h. */
#include "kernels/latent_params.h"
#include "kernels/op_params.h"

struct device;

struct math_ops {
    void (*embed)(struct device *d, const struct embed_params *p);
    /* ids[i] = last[slots[i]] but where slots[i] is UINT32_MAX: ids that only the device knows. ids
     * and slots were uploaded. */
    void (*take_last)(struct device *d, uint32_t *ids, const uint32_t *slots, const uint32_t *last,
                      uint32_t n_rows);
    /* out[i] = x[rows[i]], dim elements. On a host out may be x, where rows ascend. */
    void (*gather)(struct device *d, struct view out, struct view x, const uint32_t *rows,
                   uint32_t n_rows, uint32_t dim);
    /* Fused, or NULL: add, then norm of what it gave (norm.x is add.x); ropes of Q and K, then
     * kv_write of K and V; linear of two parts of one shape, then gated of their outs, of which
     * only gated.out is written for sure. */
    void (*add_norm)(struct device *d, const struct add_params *add, const struct norm_params *p);
    void (*rope_kv)(struct device *d, const struct rope_params *q, const struct rope_params *k,
                    const struct kv_write_params *p);
    void (*linear_gated)(struct device *d, const struct linear_params *p,
                         const struct gated_params *g);
    /* Head h's part of the row times matrix h; NULL: one linear for each head. */
    void (*heads)(struct device *d, const struct heads_params *p);
    void (*norm)(struct device *d, const struct norm_params *p);
    /* out[i] = sum of the squares of the first dim elements of row i. */
    void (*sum_squares)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim, float *out);
    void (*clear)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim); /* zeros */
    void (*linear)(struct device *d, const struct linear_params *p);
    void (*rope_table)(struct device *d, const struct rope_table_params *p);
    void (*rope)(struct device *d, const struct rope_params *p);
    void (*kv_write)(struct device *d, const struct kv_write_params *p);
    void (*attention)(struct device *d, const struct attention_params *p);
    void (*gated)(struct device *d, const struct gated_params *p);
    void (*add)(struct device *d, const struct add_params *p);
    void (*route)(struct device *d, const struct route_params *p);
    void (*moe)(struct device *d, const struct moe_params *p);
    void (*copy_heads)(struct device *d, const struct copy_heads_params *p);
    /* x = x * sigmoid(gate), gate the first element of its row. */
    void (*gate_rows)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                      struct view gate);
    /* x = cap * tanh(x / cap) */
    void (*softcap)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim, float cap);
    /* out[i] of row i of x[n_rows][dim]. */
    void (*logits_top)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                       struct logits_top *out);
    /* The same of x w^T, capped unless softcap is 0, of which nothing else is wanted: there need
     * not be a place for all of it. p has one part without an out. NULL: by linear, softcap and
     * logits_top. */
    void (*linear_top)(struct device *d, const struct linear_params *p, float softcap,
                       struct logits_top *out);
    /* out[i] = sum over j of exp(x[i][j] - shift[i]); in float lanes, the lanes in double. */
    void (*sum_exp)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                    const float *shift, double *out);
    /* The five operators of MLA's attention at once, in whichever form is the cheaper one for each
     * row; NULL: one by one. */
    void (*latent)(struct device *d, const struct latent_params *p);
};
