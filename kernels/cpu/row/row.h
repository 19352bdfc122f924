#pragma once
/* The functions of row_impl.h, attention_impl.h and linear/level_impl.h, one set per ISA. An ISA
 * file defines ISA as its suffix, includes its vec/ISA.h and then the *_impl.h;
 * kernels/cpu/kernels.h says what each does. */
#include "kernels/cpu/kernels.h"

#define ISA_JOIN2(name, isa) name##_##isa
#define ISA_JOIN(name, isa)  ISA_JOIN2(name, isa)
#define ISA_FN(name)         ISA_JOIN(name, ISA)

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
    /* to the nearest bfloat16; below 2^-126 to a zero of the sign */                              \
    void row_round_##isa(float *out, const float *x, uint32_t dim)

#define ATTENTION_DECLARE(isa)                                                                     \
    void kv_store_##isa(void *to, enum dtype dtype, float *scale, const float *from,               \
                        uint32_t dim);                                                             \
    void attention_##isa(const struct attention_params *p, uint32_t i_row, uint32_t i_kv_head,     \
                         float *scratch);                                                          \
    void attention_rows_##isa(const struct attention_params *p, uint32_t i_row, uint32_t n_rows,   \
                              uint32_t i_kv_head, float *scratch);                                 \
    void attention_split_##isa(const struct attention_params *p, uint32_t i_row,                   \
                               uint32_t i_kv_head, uint32_t i_split, uint32_t i_next,              \
                               float *scratch, float *part);                                       \
    void attention_merge_##isa(const struct attention_params *p, uint32_t i_head, bool first,      \
                               float *acc, const float *part);                                     \
    void attention_finish_##isa(const struct attention_params *p, uint32_t i_row,                  \
                                uint32_t i_kv_head, uint32_t i_head, const float *acc)

#define ROW_AND_ATTENTION_DECLARE(upper, isa)                                                      \
    ROW_DECLARE(isa);                                                                              \
    ATTENTION_DECLARE(isa);
CPU_LEVELS(ROW_AND_ATTENTION_DECLARE)
