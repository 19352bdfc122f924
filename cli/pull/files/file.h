#pragma once
/* Fetches one file of a model in one stream, into NAME.part, from where an earlier run ended.
 * NAME.part is renamed to NAME after its size and hash are checked, so a file called NAME is
 * always complete. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/progress.h"
#include "cli/pull/files/source.h"

/* Returns how many bytes of file `f` are already in `folder`, complete or in part. */
uint64_t pull_file_have(const struct pull_file *f, const char *folder);
/* Returns how many bytes of disk space file `f` already uses in `folder`, at most the file's
 * size. The number includes bytes of NAME.part that will be overwritten in place. */
uint64_t pull_file_room(const struct pull_file *f, const char *folder);
/* Fetches file `f`, or its missing bytes, into `folder` in one stream. sha256[65] receives the
 * file's hash. */
MUST_USE enum status pull_file_fetch(const struct pull_source *source, const struct pull_file *f,
                                     const char *folder, struct pull_progress *progress,
                                     char *sha256, struct error *err);
