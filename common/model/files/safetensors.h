#pragma once
/* One safetensors file, read only, memory-mapped, made for hostile files: header length, JSON,
 * dtypes, shapes, offsets and overlaps are checked at open, so that reading afterwards can not
 * fail. As the reference does, the data must be covered from its first byte to its last, without
 * holes. Names (a NUL follows each) and data point into the object and live until close. Immutable:
 * any thread. As with every mapped file, replace models by rename. Format: huggingface/safetensors
 * README. */
#include "common/model/files/tensor.h"

struct safetensors;
MUST_USE enum status safetensors_open(const char *path, struct safetensors **out,
                                      struct error *err);
/* bytes are borrowed until close; name is for error texts. */
MUST_USE enum status safetensors_open_memory(const void *bytes, size_t n, const char *name,
                                             struct safetensors **out, struct error *err);
void safetensors_close(struct safetensors *s); /* NULL is fine */
uint64_t safetensors_file_bytes(const struct safetensors *s);
/* Tensors of more than TENSOR_MAX_DIMS dimensions are checked like the others and then left out:
 * only safetensors_holds knows them. One of a dtype without a name here is DTYPE_OPAQUE. */
uint64_t safetensors_n_tensors(const struct safetensors *s);
const struct tensor *safetensors_tensor_at(const struct safetensors *s, uint64_t i); /* by offset */
const struct tensor *safetensors_find(const struct safetensors *s, const char *name);
bool safetensors_holds(const struct safetensors *s, const char *name);
/* The header's bytes as they are in the file: its length of 8 bytes, and the JSON. */
struct str safetensors_header(const struct safetensors *s);
