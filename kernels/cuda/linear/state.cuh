#pragma once
/* Defines the state that linear.cu and blas.cu keep for the products of one stream. */
#include "kernels/cuda/device/common.cuh"

extern "C" {
#include "kernels/cuda/linear/abi.h"
}

/* `blas` is cuBLASLt, ready for products (blas.cu). blas_new returns STATUS_UNSUPPORTED when
 * cuBLASLt is missing; the error text explains how to install it. */
struct blas;
MUST_USE enum status blas_new(struct blas **out, struct error *err);
void blas_free(struct blas *b); /* the pointer may be NULL */

struct gpu_linear {
    struct gpu_stream *stream;
    uint32_t n_multiprocessors, shared_bytes; /* shared_bytes: limit of shared memory for a block */
    /* shape [LINEAR_COUNTERS]: counters on the device, which are zero between launches */
    uint32_t *arrived;
    struct blas *blas;
};
static constexpr uint32_t LINEAR_COUNTERS = 4096;
