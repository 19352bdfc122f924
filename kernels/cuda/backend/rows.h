#pragma once
/* Declares the operators of struct ops on rows, except products: those of rows/abi.h and the
 * norms. */
#include "kernels/cuda/backend/state.h"

void cuda_backend_gather(struct device *d, struct view out, struct view x, const uint32_t *rows,
                         uint32_t n_rows, uint32_t dim);
void cuda_backend_add_norm(struct device *d, const struct add_params *add,
                           const struct norm_params *p);
void cuda_backend_norm(struct device *d, const struct norm_params *p);
void cuda_backend_sum_squares(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                              float *out);
void cuda_backend_clear(struct device *d, struct view x, uint32_t n_rows, uint32_t dim);
void cuda_backend_rope_table(struct device *d, const struct rope_table_params *p);
void cuda_backend_rope(struct device *d, const struct rope_params *p);
void cuda_backend_gated(struct device *d, const struct gated_params *p);
void cuda_backend_add(struct device *d, const struct add_params *p);
void cuda_backend_copy_heads(struct device *d, const struct copy_heads_params *p);
void cuda_backend_gate_rows(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                            struct view gate);
void cuda_backend_softcap(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                          float cap);
void cuda_backend_logits_top(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                             struct logits_top *out);
void cuda_backend_sum_exp(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                          const float *shift, double *out);
