#pragma once
/* Opens GGUF files of version 2 and 3, memory-mapped and read-only, safe for untrusted files.
 * Every size, count, offset and product is checked against the file at open, before it is used,
 * so that reading afterwards cannot fail. Strings and data point into the mapping and live until
 * gguf_close. The object is immutable, so any thread may use it.
 * If another program shortens the file while it is open, this process ends (SIGBUS), as with
 * every mapped file. So replace models by rename. */
#include "common/model/gguf/part.h"

/* Opens a model. `path` is the file, or the first part of a model in several files
 * (NAME-00001-of-0000N.gguf). In the second case all parts are opened, and the tensors are those
 * of all parts. The error names a part that is missing or belongs to another model. */
MUST_USE enum status gguf_open(const char *path, struct gguf **out, struct error *err);
