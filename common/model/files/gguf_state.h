#pragma once
/* Private to common/model: the object behind gguf.h, and how a model in several files becomes one
 * (gguf_split.c). */
#include "common/model/files/gguf.h"
#include "common/model/files/map.h"

#define GGUF_MAX_TENSORS (1 << 18) /* of all parts */

struct gguf {
    char *path;
    struct file_map map; /* of nothing when the bytes are borrowed */
    const uint8_t *bytes;
    size_t n_bytes, n_header_bytes;
    uint32_t version, alignment;
    uint64_t n_values, n_tensors;
    struct gguf_value *values;
    struct gguf_tensor *tensors; /* of all parts */
    const struct gguf_value **values_by_key;
    const struct gguf_tensor **tensors_by_name;
    struct gguf **parts; /* NULL: of one file; else parts[0] is unused, the others are owned */
    uint32_t n_parts;
};

/* Opens the other parts of a model in several files and takes their tensors in. */
MUST_USE enum status gguf_join(struct gguf *g, struct error *err);
/* Fills tensors_by_name from tensors. A tensor whose name another one has; NULL: there is none. */
const struct gguf_tensor *gguf_index_tensors(struct gguf *g);
