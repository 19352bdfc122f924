#pragma once
/* Fetches the files of a model over several connections at once. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/progress.h"
#include "cli/pull/files/source.h"

/* Fetches all files into `folder` over several connections. Large files are fetched in ranges
 * (ranges.h). sha256[i] gets the hash of file i. */
MUST_USE enum status pull_files_fetch(const struct pull_source *source,
                                      const struct pull_file *files, uint32_t n_files,
                                      const char *folder, struct pull_progress *progress,
                                      char (*sha256)[65], struct error *err);
