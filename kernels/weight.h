#pragma once
/* Matrices as backends keep them, and as files do. */
#include <stdint.h>

#include "common/base/dtype.h"

/* A matrix as the backend keeps it: n outputs by k inputs, y[n] = sum over k of w[n][k] * x[k].
 * dtype is that of the file: quantised weights stay quantised. */
struct weight {
    enum dtype dtype;
    uint32_t n, k;
    uint32_t group; /* inputs that share a scale, from input 0 on; 0: as many as the dtype has */
    uint64_t n_bytes;
    void *data; /* of the device; the layout is the backend's */
    /* [k] which element of its row each input is, WEIGHT_NO_INPUT: a zero; NULL: they are in order
     */
    const uint32_t *order;
};
#define WEIGHT_NO_INPUT UINT32_MAX

/* Rows of a matrix in the file's own layout: row i at ptr + i * stride_bytes. */
struct weight_rows {
    const uint8_t *ptr;
    uint64_t stride_bytes;
};
