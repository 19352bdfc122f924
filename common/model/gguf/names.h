#pragma once
/* Parses and builds the names of GGUF files: NAME.gguf, or NAME-00001-of-0000N.gguf and so on
 * for a model in several files. The functions may run on any thread. */
#include <limits.h>

#include "common/base/status.h"
#include "common/base/str.h"

enum { GGUF_SUFFIX_BYTES = 15 }; /* length of "-00001-of-0000N" in bytes */

/* Returns the length of a name or path without .gguf, or 0 for another extension. */
size_t gguf_stem_length(struct str name);
/* Reads "part *i of *n" (from 1) from the end of a name without its extension. Returns false
 * when the name has no such end. */
bool gguf_read_suffix(const char *base, size_t len, uint32_t *i, uint32_t *n);
/* Writes the path of part i into out[PATH_MAX], given the path of another part. Returns false
 * when the path is too long. */
bool gguf_part_path(const char *path, uint32_t i, uint32_t n, char out[PATH_MAX]);
/* Returns the length of a model's name in the last component of its path: without .gguf and
 * without the number of a part. */
size_t gguf_name_length(struct str base);
/* Writes the path of the first part into out[PATH_MAX]. Returns false when `path` is not that of
 * a part. */
bool gguf_first_part(const char *path, char *out);
/* Writes the path of a folder's GGUF (any part of it) into out[PATH_MAX]. Returns
 * STATUS_NOT_FOUND when the folder has no GGUF, and STATUS_INVALID when it has several models. */
MUST_USE enum status gguf_find_in_folder(const char *folder, char *out, struct error *err);
