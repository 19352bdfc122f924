#pragma once
/* Products with packed weights, and rows of them: the C ABI of linear.cu, blas.cu, dequantise.cu,
 * embed.cu. Enqueued, as all of device/abi.h. Pointers are the device's. */
#include "kernels/cuda/device/abi.h"
#include "kernels/cuda/weights/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What products of one stream have beside their arguments: counters that split sums meet at, and
 * cuBLASLt. STATUS_UNSUPPORTED: there is none, and how to get it. */
struct gpu_linear;
MUST_USE enum status gpu_linear_new(struct gpu_stream *s, const struct gpu_info *info,
                                    struct gpu_linear **out, struct error *err);
void gpu_linear_free(struct gpu_linear *l); /* NULL is fine */

/* out[r] = w x[r] (+ bias), of rows of bfloat16. */
struct gpu_product {
    struct gpu_matrix w;
    const float *bias; /* [w.n] or NULL */
    struct view out;   /* bfloat16, or float */
    bool to_float;
};
struct gpu_products {
    struct view x;
    uint32_t n_rows, n_parts; /* of one format, k and group */
    struct gpu_product parts[LINEAR_MAX_PARTS];
    /* cuda_linear_few alone: two parts, gate and up, with as many outputs each; parts[0].out, in
     * bfloat16, is act(gate) * up of what they would be, and parts[1].out is not written. */
    bool is_gated;
    enum activation act;
    float limit;
    void *scratch; /* aligned to 256 bytes */
    uint64_t scratch_bytes;
};
/* Reads the weights once for up to GPU_FEW_ROWS rows, or fewer where shared memory is small: in
 * turns. Any alignment of rows works; multiples of 16 bytes are read in words of that size.
 * scratch: of sums that are split over blocks; where there is little, they are split less. */
#define GPU_FEW_ROWS 64u
MUST_USE enum status cuda_linear_few(struct gpu_linear *l, const struct gpu_products *p,
                                     struct error *err);
/* By cuBLASLt; codes become bfloat16 in scratch first, some outputs at a time: at least
 * GPU_BLAS_WORKSPACE bytes of scratch, and 16 rows of weights. */
#define GPU_BLAS_BIASES    ((uint64_t)256 << 10) /* of it, for biases */
#define GPU_BLAS_WORKSPACE (((uint64_t)32 << 20) + GPU_BLAS_BIASES)
MUST_USE enum status cuda_linear_many(struct gpu_linear *l, const struct gpu_products *p,
                                      struct error *err);
/* Rows from which cuda_linear_many is the faster one, of a format. */
uint32_t gpu_many_rows(enum gpu_format f);

/* out[r][i] = x[r][order[i]], WEIGHT_NO_INPUT: 0. */
MUST_USE enum status cuda_gather_columns(struct gpu_stream *s, struct view out, struct view x,
                                         const uint32_t *order, uint32_t n_rows, uint32_t n,
                                         struct error *err);
/* embed_params of kernels/op_params.h; w: p->w as packed. */
MUST_USE enum status cuda_embed(struct gpu_stream *s, const struct gpu_matrix *w,
                                const struct embed_params *p, struct error *err);

#ifdef __cplusplus
}
#endif
