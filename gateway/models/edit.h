#pragma once
/* Changes the set of models for the admin API, as a text or in the file of --models. An edit is
 * checked as a whole set before it replaces the old one at once, so a reader sees the set before or
 * after it. The set is written as JSON, which is YAML, so comments are lost. The functions block
 * for a short read and write of at most 1 MiB. */
#include <jansson.h>

#include "common/base/status.h"
#include "common/base/str.h"

/* Sets the item `name` of the list "models" or "routes" to `item`, whose member "name" is set here,
 * or removes it when `item` is NULL. Appends the new text to `out`, which must have the limit
 * MODELS_FILE_MAX. An empty text is a set without models.
 * STATUS_NOT_FOUND: there is no such item to remove. STATUS_INVALID: the set would have an error.
 * STATUS_EXISTS: a program owns the set (its member "managed_by"). The text of an error is for the
 * client. */
MUST_USE enum status models_text_edit(struct str text, const char *list, struct str name,
                                      const json_t *item, struct strbuf *out, struct error *err);
/* Does the same in the file at `path`. STATUS_IO: the file cannot be read or written. */
MUST_USE enum status models_file_edit(const char *path, const char *list, struct str name,
                                      const json_t *item, struct error *err);
