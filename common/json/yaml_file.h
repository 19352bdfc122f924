#pragma once
/* Changes a YAML file that several programs edit. A change is written as JSON, which is YAML, so
 * comments are lost. A reader sees the file before or after a change, never a part of one. The
 * functions block for a short read or write. */
#include <jansson.h>
#include <sys/types.h>

#include "common/base/status.h"
#include "common/base/str.h"

/* Locks FILE.lock beside the file, or beside the file that a link leads to, so that of two programs
 * one edits after the other. Returns the descriptor, which the caller closes, or -1 after a tenth
 * of a second, or when there can be no lock. */
int yaml_file_lock(const char *path, struct error *err);
/* Makes a tree of JSON from a mapping of lists of mappings, whose values may be lists. A plain
 * text stays a text, because a name such as 1.10 is no number. */
MUST_USE enum status yaml_file_tree(struct str text, json_t **owned, struct error *err);
/* Replaces the file at once; a link stays, and the file that it leads to is replaced. The new file
 * has the old one's mode, or `mode`. */
MUST_USE enum status yaml_file_store(const char *path, const char *text, mode_t mode,
                                     struct error *err);
