#pragma once
/* Declares the functions of row_impl.h, one set for each level. kernels/cpu/kernels.h describes
 * each function. */
#include "kernels/cpu/kernels.h"

#define ROW_DECLARE(isa)                                                                           \
    float row_sum_squares_##isa(const float *x, uint32_t dim);                                     \
    void row_norm_##isa(float *out, const float *x, const float *w, uint32_t dim,                  \
                        float mean_square);                                                        \
    void row_rope_##isa(float *x, const float *cos_sin, uint32_t n_rot, bool interleaved);         \
    void row_gated_##isa(float *out, const float *gate, const float *up, uint32_t dim,             \
                         enum activation act, float limit);                                        \
    void row_add_##isa(float *x, const float *y, uint32_t dim);                                    \
    void row_add_scaled_##isa(float *x, const float *y, uint32_t dim, float share);                \
    void row_scale_##isa(float *x, uint32_t dim, float share);                                     \
    void row_softcap_##isa(float *x, uint32_t dim, float cap);                                     \
    struct logits_top row_logits_top_##isa(const float *x, uint32_t dim);                          \
    double row_sum_exp_##isa(const float *x, uint32_t dim, float shift);                           \
    /* rounds to the nearest bfloat16; magnitudes below 2^-126 become zero with the same sign */   \
    void row_round_##isa(float *out, const float *x, uint32_t dim)

#define ROW_DECLARE_LEVEL(upper, isa) ROW_DECLARE(isa);
CPU_LEVELS(ROW_DECLARE_LEVEL)
