#pragma once
/* Changes the file of --models for the admin API. An edit is checked as a whole file before it
 * replaces the old one at once, so a reader sees the file before or after it. The file is written
 * as JSON, which is YAML, so comments are lost. The functions block for a short read and write of
 * at most 1 MiB. */
#include <jansson.h>

#include "common/base/status.h"
#include "common/base/str.h"

/* Sets the item `name` of the list "models" or "routes" to `item`, whose member "name" is set here,
 * or removes it when `item` is NULL.
 * STATUS_NOT_FOUND: there is no such item to remove. STATUS_INVALID: the file would have an error.
 * STATUS_EXISTS: a program owns the file (its member "managed_by"). STATUS_IO: the file cannot be
 * read or written. The text of an error is for the client. */
MUST_USE enum status models_file_edit(const char *path, const char *list, struct str name,
                                      const json_t *item, struct error *err);
