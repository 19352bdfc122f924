#pragma once
/* Declares the functions of attention_impl.h, rows_impl.h and kv_store_impl.h, one set for each
 * level. kernels/cpu/kernels.h describes each function. */
#include "kernels/cpu/kernels.h"

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

#define ATTENTION_DECLARE_LEVEL(upper, isa) ATTENTION_DECLARE(isa);
CPU_LEVELS(ATTENTION_DECLARE_LEVEL)
