#pragma once
/* Fetches one file of a model in one stream, into NAME.part, from where an earlier run ended.
 * After size and hash are checked, NAME.part is renamed to NAME, so a file called NAME is always
 * whole. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/progress.h"
#include "cli/pull/files/source.h"

/* Returns how many bytes of file `f` are in `folder` already, whole or in part. */
uint64_t pull_file_have(const struct pull_file *f, const char *folder);
/* Returns how many bytes of the disk file `f` takes in `folder` already, at most its size. The
 * number includes bytes of NAME.part that will be overwritten in place. */
uint64_t pull_file_room(const struct pull_file *f, const char *folder);
/* Fetches file `f`, or its missing bytes, into `folder` in one stream. sha256[65] gets the hash
 * of the file. */
MUST_USE enum status pull_file_fetch(const struct pull_source *source, const struct pull_file *f,
                                     const char *folder, struct pull_progress *progress,
                                     char *sha256, struct error *err);
