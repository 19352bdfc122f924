#pragma once
/* The state that linear.cu and blas.cu keep for the products of one stream. */
#include "kernels/cuda/device/common.cuh"

extern "C" {
#include "kernels/cuda/linear/abi.h"
}

/* blas.cu: cuBLASLt, ready for products. STATUS_UNSUPPORTED: there is none, and how to get it. */
struct blas;
MUST_USE enum status blas_new(struct blas **out, struct error *err);
void blas_free(struct blas *b); /* NULL is fine */

struct gpu_linear {
    struct gpu_stream *stream;
    uint32_t n_multiprocessors, shared_bytes; /* of a block at most */
    uint32_t *arrived;                        /* [LINEAR_COUNTERS] of the device, zeros */
    struct blas *blas;
};
static constexpr uint32_t LINEAR_COUNTERS = 4096;
