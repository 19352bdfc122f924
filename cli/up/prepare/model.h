#pragma once
/* Fetches the model of `cox up` into the cache or into memory, and checks it before any process
 * starts. */
#include "cli/pull/stream.h"
#include "cli/up/plan/options.h"
#include "common/base/arena.h"

struct up_model {
    const char *name;          /* MODEL for the children; borrowed, or on the arena */
    const char *family;        /* model family, a static string; NULL = unknown */
    struct pull_stream stream; /* files of a model in memory; otherwise unused */
    const char *stream_name;
    uint64_t fetched_ns; /* end of the fetch, monotonic clock; 0 = not fetched */
    bool has_not_come;   /* the model is missing because the fetch failed or was stopped */
    bool has_loop;       /* the cluster runs: its loop handles signals, and nothing is fetched */
};

/* Opens the model. m->name is MODEL of the command line; the caller zeroes the other fields
 * before, or sets has_loop. When the options name no served name, a model in memory adds one to
 * `o`. STATUS_INVALID: the model is missing or not supported. The caller closes `m` in every case.
 */
MUST_USE enum status up_model_open(struct up_model *m, struct up_options *o, const char *command,
                                   const char *tmp_dir, struct arena *arena, struct error *err);
/* Stops the copy of a model on another thread, for the end of the process. */
void up_model_stop(void);
void up_model_close(struct up_model *m); /* Frees the model; accepts a zeroed struct. */
