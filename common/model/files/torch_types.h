#pragma once
/* Describes the storages and tensors of a PyTorch checkpoint, as its pickle names them. The
 * structs are plain data. */
#include "common/base/dtype.h"
#include "common/base/str.h"

#define TORCH_MAX_DIMS 8

/* `torch_storage` is a block of bytes that tensors share. */
struct torch_storage {
    struct str key;   /* KEY of the archive's member data/KEY */
    enum dtype dtype; /* type of the elements; DTYPE_OPAQUE = untyped, and elements are bytes */
    uint64_t n_elems;
};

/* `torch_tensor` is a view of a storage. Numbers count elements of dtype. They are not checked
 * against the storage. */
struct torch_tensor {
    struct str name;
    uint32_t storage; /* index into the list of storages */
    enum dtype dtype;
    uint32_t n_dims;
    uint64_t first, shape[TORCH_MAX_DIMS], stride[TORCH_MAX_DIMS];
};
