#pragma once
/* Declares the operators of struct ops on rows, except products. */
#include "kernels/cpu/backend/state.h"

void cpu_take_last(struct device *d, uint32_t *ids, const uint32_t *slots, const uint32_t *last,
                   uint32_t n_rows);
void cpu_gather(struct device *d, struct view out, struct view x, const uint32_t *rows,
                uint32_t n_rows, uint32_t dim);
void cpu_norm(struct device *d, const struct norm_params *p);
void cpu_sum_squares(struct device *d, struct view x, uint32_t n_rows, uint32_t dim, float *out);
void cpu_clear(struct device *d, struct view x, uint32_t n_rows, uint32_t dim);
void cpu_rope_table(struct device *d, const struct rope_table_params *p);
void cpu_rope(struct device *d, const struct rope_params *p);
void cpu_gated(struct device *d, const struct gated_params *p);
void cpu_add(struct device *d, const struct add_params *p);
void cpu_softcap(struct device *d, struct view x, uint32_t n_rows, uint32_t dim, float cap);
void cpu_logits_top(struct device *d, struct view x, uint32_t n_rows, uint32_t dim,
                    struct logits_top *out);
void cpu_sum_exp(struct device *d, struct view x, uint32_t n_rows, uint32_t dim, const float *shift,
                 double *out);
