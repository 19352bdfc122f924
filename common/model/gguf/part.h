#pragma once
/* One file of a GGUF: opened, checked as a whole, and asked for what it has (gguf.h says more). A
 * model in several files is its first part, which has the tensors of all. */
#include "common/base/status.h"
#include "common/model/gguf/type.h"

struct gguf;

/* One file, whatever it says of others. */
MUST_USE enum status gguf_open_part(const char *path, struct gguf **out, struct error *err);
/* bytes are borrowed until close; name is for error texts. */
MUST_USE enum status gguf_open_memory(const void *bytes, size_t n, const char *name,
                                      struct gguf **out, struct error *err);
void gguf_close(struct gguf *g); /* NULL is fine */

/* One part's file, the file's size, and its magic, metadata and table of tensors as they are in the
 * file. The model itself is its first part. */
const char *gguf_path(const struct gguf *g);
uint64_t gguf_file_bytes(const struct gguf *g);
struct str gguf_header(const struct gguf *g);
uint32_t gguf_n_parts(const struct gguf *g);                    /* 1: it is in one file */
const struct gguf *gguf_part(const struct gguf *g, uint32_t i); /* i < gguf_n_parts */

uint64_t gguf_n_values(const struct gguf *g);
const struct gguf_value *gguf_value_at(const struct gguf *g, uint64_t i); /* in file order */

uint64_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i); /* in file order */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* Fills tensors_by_name from tensors, for split.c. Returns a tensor whose name another one has;
 * NULL: there is none. */
const struct gguf_tensor *gguf_index_tensors(struct gguf *g);
