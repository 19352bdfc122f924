#pragma once
/* One file of a model, in one stream: into NAME.part, which is gone on with where it ended, checked
 * by size and hash, then renamed to NAME. So a NAME in the folder is a whole one. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/progress.h"
#include "cli/pull/files/source.h"

/* Bytes of f that lie in folder already, whole or in part. */
uint64_t pull_file_have(const struct pull_file *f, const char *folder);
/* Bytes of the disk that f takes in folder already, at most its own: those, and what of its part is
 * written again in its place. */
uint64_t pull_file_room(const struct pull_file *f, const char *folder);
/* Fetches f into folder in one stream, or what is missing of it. sha256[65] is filled with what it
 * was said or found to be. */
MUST_USE enum status pull_file_fetch(const struct pull_source *source, const struct pull_file *f,
                                     const char *folder, struct pull_progress *progress,
                                     char *sha256, struct error *err);
