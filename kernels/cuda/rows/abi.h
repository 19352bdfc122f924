#pragma once
/* Declares the operators on rows except products, in bfloat16 unless float is mentioned. This is
 * a C ABI: pointers are device pointers, and calls enqueue work (device/abi.h explains the
 * errors). Rows may have any alignment. Rows at multiples of 16 bytes are read and written in
 * words of that size, with the same bits. */
#include "kernels/cuda/device/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues the RMS norm of bfloat16 rows (norm_params of kernels/op_params.h). The order of its
 * sums follows from the row's dimension alone. Returns STATUS_UNSUPPORTED when dim is above
 * CUDA_NORM_MAX_DIM. */
#define CUDA_NORM_MAX_DIM 32768u
MUST_USE enum status cuda_norm_bf16(struct gpu_stream *s, const struct norm_params *p,
                                    struct error *err);
/* Computes x += y, rounded to bfloat16, then out = norm(x), with the bits of the two separate
 * operators. norm.out and x must not overlap. */
struct add_norm_params {
    struct norm_params norm;
    struct view y;
};
MUST_USE enum status cuda_add_norm_bf16(struct gpu_stream *s, const struct add_norm_params *p,
                                        struct error *err);

MUST_USE enum status cuda_gather(struct gpu_stream *s, struct view out, struct view x,
                                 const uint32_t *rows, uint32_t n_rows, uint32_t dim,
                                 struct error *err);
MUST_USE enum status cuda_sum_squares(struct gpu_stream *s, struct view x, uint32_t n_rows,
                                      uint32_t dim, float *out, struct error *err);
MUST_USE enum status cuda_clear(struct gpu_stream *s, struct view x, uint32_t n_rows, uint32_t dim,
                                struct error *err);
MUST_USE enum status cuda_rope_table(struct gpu_stream *s, const struct rope_table_params *p,
                                     struct error *err);
MUST_USE enum status cuda_rope(struct gpu_stream *s, const struct rope_params *p,
                               struct error *err);
MUST_USE enum status cuda_gated(struct gpu_stream *s, const struct gated_params *p,
                                struct error *err);
MUST_USE enum status cuda_add(struct gpu_stream *s, const struct add_params *p, struct error *err);
MUST_USE enum status cuda_copy_heads(struct gpu_stream *s, const struct copy_heads_params *p,
                                     struct error *err);
MUST_USE enum status cuda_gate_rows(struct gpu_stream *s, struct view x, uint32_t n_rows,
                                    uint32_t dim, struct view gate, struct error *err);

/* The operators below take rows of logits in float. */
MUST_USE enum status cuda_softcap(struct gpu_stream *s, struct view x, uint32_t n_rows,
                                  uint32_t dim, float cap, struct error *err);
MUST_USE enum status cuda_logits_top(struct gpu_stream *s, struct view x, uint32_t n_rows,
                                     uint32_t dim, struct logits_top *out, struct error *err);
MUST_USE enum status cuda_sum_exp(struct gpu_stream *s, struct view x, uint32_t n_rows,
                                  uint32_t dim, const float *shift, double *out, struct error *err);

#ifdef __cplusplus
}
#endif
