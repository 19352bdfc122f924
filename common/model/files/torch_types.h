#pragma once
/* Storages and tensors of a PyTorch checkpoint, as its pickle describes them. Plain data. */
#include "common/base/dtype.h"
#include "common/base/str.h"

#define TORCH_MAX_DIMS 8

/* Bytes that tensors share. */
struct torch_storage {
    struct str key;   /* of the archive's member data/KEY */
    enum dtype dtype; /* DTYPE_OPAQUE: untyped, its elements are bytes */
    uint64_t n_elems;
};

/* In elements of dtype; not checked against the storage. */
struct torch_tensor {
    struct str name;
    uint32_t storage; /* index */
    enum dtype dtype;
    uint32_t n_dims;
    uint64_t first, shape[TORCH_MAX_DIMS], stride[TORCH_MAX_DIMS];
};
