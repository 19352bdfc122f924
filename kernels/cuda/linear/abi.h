#pragma once
/* Declares products with packed weights, and the reading of rows of these weights: the C ABI of
 * linear.cu, blas.cu, dequantise.cu and embed.cu. Calls enqueue work, as in device/abi.h.
 * Pointers are device pointers. */
#include "kernels/cuda/device/abi.h"
#include "kernels/cuda/weights/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `gpu_linear` is the state of one stream's products: the counters that combine split sums, and
 * cuBLASLt. gpu_linear_new returns STATUS_UNSUPPORTED when cuBLASLt is missing; the error text
 * explains how to install it. */
struct gpu_linear;
MUST_USE enum status gpu_linear_new(struct gpu_stream *s, const struct gpu_info *info,
                                    struct gpu_linear **out, struct error *err);
void gpu_linear_free(struct gpu_linear *l); /* the pointer may be NULL */

/* `gpu_product` describes out[r] = w x[r] (+ bias) for rows of bfloat16. */
struct gpu_product {
    struct gpu_matrix w;
    const float *bias; /* `bias` has the shape [w.n], or is NULL */
    struct view out;   /* rows of results, bfloat16 or float */
    bool to_float;
};
struct gpu_products {
    struct view x;
    uint32_t n_rows, n_parts; /* n_parts: number of parts, which have equal format, k and group */
    struct gpu_product parts[LINEAR_MAX_PARTS];
    /* Used by cuda_linear_few only: there are two parts, gate and up, with equally many outputs.
     * parts[0].out receives act(gate) * up in bfloat16; parts[1].out is not written. */
    bool is_gated;
    enum activation act;
    float limit;
    void *scratch; /* scratch memory, aligned to 256 bytes */
    uint64_t scratch_bytes;
};
/* Multiplies few rows. The weights are read once for up to GPU_FEW_ROWS rows, or for fewer if
 * shared memory is small. More rows need several launches, and each launch reads the weights
 * again. Rows may have any alignment, and rows at multiples of 16 bytes are read in words of
 * that size. The scratch holds sums that are split over blocks. With less scratch, there are
 * fewer splits. */
#define GPU_FEW_ROWS 64u
MUST_USE enum status cuda_linear_few(struct gpu_linear *l, const struct gpu_products *p,
                                     struct error *err);
/* Multiplies with cuBLASLt. Codes are first converted to bfloat16 in scratch, some outputs at a
 * time. The scratch needs at least GPU_BLAS_WORKSPACE bytes and 16 rows of weights. */
#define GPU_BLAS_BIASES    ((uint64_t)256 << 10) /* part of the workspace, for biases */
#define GPU_BLAS_WORKSPACE (((uint64_t)32 << 20) + GPU_BLAS_BIASES)
MUST_USE enum status cuda_linear_many(struct gpu_linear *l, const struct gpu_products *p,
                                      struct error *err);
/* Returns the number of rows from which cuda_linear_many is faster for a format. */
uint32_t gpu_many_rows(enum gpu_format f);

/* Computes out[r][i] = x[r][order[i]]; WEIGHT_NO_INPUT gives 0. */
MUST_USE enum status cuda_gather_columns(struct gpu_stream *s, struct view out, struct view x,
                                         const uint32_t *order, uint32_t n_rows, uint32_t n,
                                         struct error *err);
/* Enqueues embed_params of kernels/op_params.h; w is the packed p->w. */
MUST_USE enum status cuda_embed(struct gpu_stream *s, const struct gpu_matrix *w,
                                const struct embed_params *p, struct error *err);

#ifdef __cplusplus
}
#endif
