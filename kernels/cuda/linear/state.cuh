#pragma once
/* The state that linear.cu and blas.cu keep for the products of one stream. */
#include "kernels/cuda/device/common.cuh"

extern "C" {
#include "kernels/cuda/linear/abi.h"
}

/* From blas.cu: cuBLASLt, ready for products. Returns STATUS_UNSUPPORTED when it is missing; the
 * text says how to install it. */
struct blas;
MUST_USE enum status blas_new(struct blas **out, struct error *err);
void blas_free(struct blas *b); /* NULL is fine */

struct gpu_linear {
    struct gpu_stream *stream;
    uint32_t n_multiprocessors, shared_bytes; /* shared_bytes: limit for a block */
    uint32_t *arrived;                        /* [LINEAR_COUNTERS], on the device; zeros */
    struct blas *blas;
};
static constexpr uint32_t LINEAR_COUNTERS = 4096;
