#pragma once
/* Fetches a remote model straight into memory: `cox up s3://… --load-format stream`.
 * Each file is a memfd of this process. The children open a folder of links to these files
 * (/proc/PID/fd/N) as the model. All children on the host therefore map the same pages. The
 * memory is freed when this process and its children have ended, even by a signal. The folder
 * holds no bytes, and the next run removes it (throw_away.h). */
#include "cli/base/throw_away.h"
#include "cli/pull/pull.h"

struct pull_stream {
    struct throw_away folder; /* folder of the links; its path is the model's path */
    char *name;               /* served name; for a reference, the reference's text (model_ref) */
    int *fds;
    uint32_t n_fds;
    uint64_t n_bytes;
    double seconds;
    bool only_heads;
};
/* Returns true for a reference that is not in the cache. Other models are served from the place
 * where they are. */
bool pull_stream_wanted(const struct pull_options *o, const char *model);
/* Fetches the model. The caller closes *out with pull_stream_close in every case. The folder is
 * made in tmp_dir. STATUS_LIMIT: there is not enough memory. */
MUST_USE enum status pull_stream_open(const struct pull_options *o, const char *model,
                                      const char *tmp_dir, struct pull_stream *out,
                                      struct error *err);
/* Fetches only the parts that a plan needs (files/head.h). */
MUST_USE enum status pull_stream_open_heads(const struct pull_options *o, const char *model,
                                            const char *tmp_dir, struct pull_stream *out,
                                            struct error *err);
/* Keeps the files and the folder's lock open across the exec, for the program that this process
 * becomes. */
MUST_USE enum status pull_stream_keep(const struct pull_stream *s, struct error *err);
void pull_stream_close(struct pull_stream *s);
