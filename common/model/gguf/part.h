#pragma once
/* Opens, checks and queries one file of a GGUF model (gguf.h describes whole models). The object
 * of a model in several files is its first part, which has the tensors of all parts. */
#include "common/base/status.h"
#include "common/model/files/map.h"
#include "common/model/gguf/type.h"

struct gguf;

/* Opens one file, even if the file says that there are other parts. */
MUST_USE enum status gguf_open_part(const char *path, struct gguf **out, struct error *err);
/* Opens a GGUF file in memory. `bytes` is borrowed until close. `name` is for error texts. */
MUST_USE enum status gguf_open_memory(const void *bytes, size_t n, const char *name,
                                      struct gguf **out, struct error *err);
void gguf_close(struct gguf *g); /* g may be NULL */

/* These functions return path, size and header (magic, metadata and table of tensors, as in the
 * file) of one part. The object of a whole model is its first part. */
const char *gguf_path(const struct gguf *g);
uint64_t gguf_file_bytes(const struct gguf *g);
struct str gguf_header(const struct gguf *g);
struct file_stamp gguf_stamp(const struct gguf *g); /* returns the stamp of one part's file */
uint32_t gguf_n_parts(const struct gguf *g); /* returns the number of parts; 1 = a single file */
const struct gguf *gguf_part(const struct gguf *g, uint32_t i); /* i must be below gguf_n_parts */

uint64_t gguf_n_values(const struct gguf *g);
/* Returns a metadata value by its index. Values are in the order of the file. Returns NULL
 * beyond the last. */
const struct gguf_value *gguf_value_at(const struct gguf *g, uint64_t i);

uint64_t gguf_n_tensors(const struct gguf *g);
/* Returns a tensor by its index. Tensors are in the order of the file. */
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* Fills tensors_by_name from tensors, for split.c. Returns a tensor with a repeated name, or
 * NULL when all names differ. */
const struct gguf_tensor *gguf_index_tensors(struct gguf *g);
