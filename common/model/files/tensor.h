#pragma once
/* Describes a tensor in a file, for every file format. */
#include "common/base/dtype.h"
#include "common/base/status.h"
#include "common/base/str.h"

#define TENSOR_MAX_DIMS 4
struct tensor {
    struct str name;
    enum dtype dtype;
    uint32_t n_dims;
    /* sizes, outermost first; the last dimension is contiguous; 1 beyond n_dims */
    uint64_t shape[TENSOR_MAX_DIMS];
    uint64_t n_bytes;
    const uint8_t *data; /* first byte of the tensor in the mapping; may be unaligned */
};
