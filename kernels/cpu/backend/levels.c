/* Fills each level's table of kernels with the functions from the level's ISA files. */
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/linear/linear.h"
#include "kernels/cpu/row/row.h"

#define KERNELS(level, isa_)                                                                       \
    const struct cpu_kernels cpu_kernels_##isa_ = {.isa = #isa_,                                   \
                                                   .linear = linear_##isa_,                        \
                                                   .embed_row = embed_row_##isa_,                  \
                                                   .sum_squares = row_sum_squares_##isa_,          \
                                                   .norm = row_norm_##isa_,                        \
                                                   .rope = row_rope_##isa_,                        \
                                                   .gated = row_gated_##isa_,                      \
                                                   .add = row_add_##isa_,                          \
                                                   .add_scaled = row_add_scaled_##isa_,            \
                                                   .scale = row_scale_##isa_,                      \
                                                   .softcap = row_softcap_##isa_,                  \
                                                   .logits_top = row_logits_top_##isa_,            \
                                                   .sum_exp = row_sum_exp_##isa_,                  \
                                                   .kv_store = kv_store_##isa_,                    \
                                                   .attention = attention_##isa_,                  \
                                                   .attention_rows = attention_rows_##isa_,        \
                                                   .attention_split = attention_split_##isa_,      \
                                                   .attention_merge = attention_merge_##isa_,      \
                                                   .attention_finish = attention_finish_##isa_};
CPU_LEVELS(KERNELS)
