#pragma once
/* The model of `cox up`: brought into the cache, or straight into memory, and looked at before any
 * process starts. */
#include "cli/pull/stream.h"
#include "cli/up/plan/options.h"
#include "common/base/arena.h"

struct up_model {
    const char *name;          /* as the children get it; borrowed, or on the arena */
    const char *family;        /* static; NULL: not known */
    struct pull_stream stream; /* of a model that is in memory only */
    const char *stream_name;
    uint64_t fetched_ns; /* when it had come (monotonic); 0: it was there */
    bool has_not_come;   /* the fetch of it failed, or was stopped */
};

/* m->name is the MODEL of the command line. A model in memory gets its name into o where the
 * options name none. INVALID: it is not there, or not supported. Zeroed before; closed in each
 * case. */
MUST_USE enum status up_model_open(struct up_model *m, struct up_options *o, const char *command,
                                   const char *tmp_dir, struct arena *arena, struct error *err);
void up_model_close(struct up_model *m); /* zeroed is fine */
