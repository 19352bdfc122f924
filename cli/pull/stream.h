#pragma once
/* A model elsewhere, straight into memory: `cox up s3://… --load-format stream`. Each file is a
 * memfd of this process, and a folder of links to them (/proc/PID/fd/N) is what the children open
 * as a model; so they all map the same pages, once on a host. The memory is nobody's when this
 * process and its children have ended, however they have; the folder holds no bytes, and the next
 * one removes it (throw_away.h). */
#include "cli/base/throw_away.h"
#include "cli/pull/pull.h"

struct pull_stream {
    struct throw_away folder; /* path: the model */
    char *name;               /* served as; for a reference what model_ref says */
    int *fds;
    uint32_t n_fds;
    uint64_t n_bytes;
    double seconds;
    bool only_heads;
};
/* Is it a reference that is not in the cache? Else it is served from where it lies. */
bool pull_stream_wanted(const struct pull_options *o, const char *model);
/* *out is for pull_stream_close in any case. tmp_dir: of the folder. LIMIT: there is no room. */
MUST_USE enum status pull_stream_open(const struct pull_options *o, const char *model,
                                      const char *tmp_dir, struct pull_stream *out,
                                      struct error *err);
/* Fetches only what it is planned from (files/head.h). */
MUST_USE enum status pull_stream_open_heads(const struct pull_options *o, const char *model,
                                            const char *tmp_dir, struct pull_stream *out,
                                            struct error *err);
/* For a program that this process becomes: it has the files, and the folder's lock. */
MUST_USE enum status pull_stream_keep(const struct pull_stream *s, struct error *err);
void pull_stream_close(struct pull_stream *s);
