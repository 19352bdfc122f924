#pragma once
/* Declares the table of operators of struct ops (kernels/ops.h has their common rules), in which
 * programs are written. kernels/op_params.h has the shapes and the math. */
#include "kernels/latent_params.h"
#include "kernels/op_params.h"

struct device;

struct math_ops {
    void (*embed)(struct device *d, const struct embed_params *p);
    /* Sets ids[i] = last[slots[i]], unless slots[i] is UINT32_MAX. It is used for ids that only
     * the device has. ids and slots must have been uploaded. */
    void (*take_last)(struct device *d, uint32_t *ids, const uint32_t *slots, const uint32_t *last,
                      uint32_t n_rows);
    /* Sets out[i] = x[rows[i]], dim elements each. On a CPU, out may be x if rows ascend. */
    void (*gather)(struct device *d, struct view out, struct view x, const uint32_t *rows,
                   uint32_t n_rows, uint32_t dim);
    /* The three operators below are fused, and each may be NULL. add_norm computes add, then
     * norm of the result (norm.x is add.x). rope_kv computes the ropes of Q and K, then kv_write
     * of K and V. linear_gated computes linear of two parts of one shape, then gated of their
     * results. It need not write any output except gated.out. */
    void (*add_norm)(struct device *d, const struct add_params *add, const struct norm_params *p);
    void (*rope_kv)(struct device *d, const struct rope_params *q, const struct rope_params *k,
                    const struct kv_write_params *p);
    void (*linear_gated)(struct device *d, const struct linear_params *p,
                         const struct gated_params *g);
    /* Multiplies head h's part of the row by matrix h. NULL: use one linear for each head. */
    void (*heads)(struct device *d, const struct heads_params *p);
    void (*norm)(struct device *d, const struct norm_params *p);
    /* Sets out[i] to the sum of the squares of the first dim elements of row i. */
    void (*sum_squares)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim, float *out);
    /* Writes zeros to the rows of x. */
    void (*clear)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim);
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
    /* Computes x = x * sigmoid(gate), where gate is the first element of its row. */
    void (*gate_rows)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                      struct view gate);
    /* Computes x = cap * tanh(x / cap). */
    void (*softcap)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim, float cap);
    /* Sets out[i] to the best two logits of row i of x[n_rows][dim] (struct logits_top). */
    void (*logits_top)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                       struct logits_top *out);
    /* Computes logits_top of x w^T, capped unless softcap is 0, without storing the product. p
     * has one part without an `out`. NULL: use linear, softcap and logits_top. */
    void (*linear_top)(struct device *d, const struct linear_params *p, float softcap,
                       struct logits_top *out);
    /* Sets out[i] = sum over j of exp(x[i][j] - shift[i]); the lanes are added in float, then
     * together in double. */
    void (*sum_exp)(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                    const float *shift, double *out);
    /* Computes the five operators of MLA's attention at once, in the cheaper form for each row.
     * NULL: use the five operators one by one. */
    void (*latent)(struct device *d, const struct latent_params *p);
};
