#pragma once
/* Defines the struct that gguf.h declares. Only common/model/gguf includes this header. */
#include "common/model/files/map.h"
#include "common/model/gguf/type.h"

#define GGUF_MAX_TENSORS (1 << 18) /* most tensors of all parts together */

struct gguf {
    char *path;
    struct file_map map; /* mapping of the file; empty when the bytes are borrowed */
    const uint8_t *bytes;
    size_t n_bytes, n_header_bytes;
    uint32_t version, alignment;
    uint64_t n_values, n_tensors;
    struct gguf_value *values;
    struct gguf_tensor *tensors; /* tensors of all parts */
    const struct gguf_value **values_by_key;
    const struct gguf_tensor **tensors_by_name;
    /* Objects of all parts; NULL = a single file. parts[0] is unused, and the other parts are
     * owned. */
    struct gguf **parts;
    uint32_t n_parts;
};
