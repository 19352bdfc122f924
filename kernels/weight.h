#pragma once
/* Declares matrices in the form that backends keep, and rows in the form that files have. */
#include <stdint.h>

#include "common/base/dtype.h"

/* `weight` is a matrix as the backend keeps it: n outputs by k inputs, y[n] = sum over k of
 * w[n][k] * x[k]. `dtype` is the file's: quantised weights stay quantised. */
struct weight {
    enum dtype dtype;
    uint32_t n, k;
    /* number of inputs that share a scale, from input 0 on; 0 = the dtype's usual number */
    uint32_t group;
    uint64_t n_bytes;
    void *data; /* packed bytes in device memory, in the backend's layout */
    /* shape [k]: the element of x that each input takes; WEIGHT_NO_INPUT: a zero. NULL: the
     * inputs are in order. */
    const uint32_t *order;
};
#define WEIGHT_NO_INPUT UINT32_MAX

/* `weight_rows` names rows of a matrix in the file's own layout: row i lies at ptr + i *
 * stride_bytes. */
struct weight_rows {
    const uint8_t *ptr;
    uint64_t stride_bytes;
};
