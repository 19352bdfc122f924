#pragma once
/* Reads one safetensors file, memory-mapped and read-only, safe for untrusted files. Header
 * length, JSON, dtypes, shapes, offsets and overlaps are checked at open, so that reading
 * afterwards cannot fail. As in the reference implementation, tensors must cover the data
 * without holes.
 * Names (followed by a NUL) and data point into the object and live until close. The object is
 * immutable, so any thread may use it. As with every mapped file, replace models by rename.
 * Format: huggingface/safetensors README. */
#include "common/model/files/map.h"
#include "common/model/files/tensor.h"

struct safetensors;
MUST_USE enum status safetensors_open(const char *path, struct safetensors **out,
                                      struct error *err);
/* Opens a safetensors file in memory. `bytes` is borrowed until close. `name` is for error
 * texts. */
MUST_USE enum status safetensors_open_memory(const void *bytes, size_t n, const char *name,
                                             struct safetensors **out, struct error *err);
void safetensors_close(struct safetensors *s); /* s may be NULL */
uint64_t safetensors_file_bytes(const struct safetensors *s);
struct file_stamp safetensors_stamp(const struct safetensors *s);
/* Returns the number of tensors. Tensors of more than TENSOR_MAX_DIMS dimensions are checked but
 * left out. Only safetensors_holds finds them. A dtype that dtype.h does not list becomes
 * DTYPE_OPAQUE. */
uint64_t safetensors_n_tensors(const struct safetensors *s);
/* Returns a tensor by its index. Tensors are sorted by offset. */
const struct tensor *safetensors_tensor_at(const struct safetensors *s, uint64_t i);
const struct tensor *safetensors_find(const struct safetensors *s, const char *name);
bool safetensors_holds(const struct safetensors *s, const char *name);
/* Returns the file's first bytes: 8 bytes of length, and the JSON header. */
struct str safetensors_header(const struct safetensors *s);
