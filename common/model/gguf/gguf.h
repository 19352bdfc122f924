#pragma once
/* GGUF version 2 and 3, read only, memory-mapped, made for hostile files: every size, count, offset
 * and product is checked against the file before it is used, and all of it at open, so that reading
 * afterwards can not fail. Strings and data point into the mapping and live until gguf_close. The
 * object is immutable: any thread. A file that another program shortens while it is open ends this
 * process (SIGBUS), as with every mapped file: replace models by rename. */
#include "common/model/gguf/part.h"

/* path: the file, or the first of a model in several (NAME-00001-of-0000N.gguf): then all are
 * opened, and the tensors are those of all of them. A part that is missing, or of another
 * model, is named. */
MUST_USE enum status gguf_open(const char *path, struct gguf **out, struct error *err);
