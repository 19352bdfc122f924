#pragma once
/* Names of GGUF files: NAME.gguf, or NAME-00001-of-0000N.gguf and so on of a model in several
 * files. Any thread. */
#include <limits.h>

#include "common/base/status.h"
#include "common/base/str.h"

enum { GGUF_SUFFIX_BYTES = 15 }; /* of "-00001-of-0000N" */

/* Length of a name or path without .gguf; 0: it has another extension. */
size_t gguf_stem_length(struct str name);
/* Part *i (from 1) of *n, told from the end of a name without its extension. */
bool gguf_read_suffix(const char *base, size_t len, uint32_t *i, uint32_t *n);
/* The path of part i into out[PATH_MAX], from the path of another one; false: too long. */
bool gguf_part_path(const char *path, uint32_t i, uint32_t n, char out[PATH_MAX]);
/* Length of a model's name in the last component of its path: without .gguf, and without what says
 * which part of a model it is. */
size_t gguf_name_length(struct str base);
/* The path of a part's first one into out[PATH_MAX]; false: path names no part. */
bool gguf_first_part(const char *path, char *out);
/* The GGUF of a folder (any part of it) into out[PATH_MAX]. NOT_FOUND, or INVALID when there are
 * several models. */
MUST_USE enum status gguf_find_in_folder(const char *folder, char *out, struct error *err);
