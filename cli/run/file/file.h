#pragma once
/* Reads a run file from its text alone: no file, no process, no environment, so that what is
 * checked is what another machine would check. Every text lives on the arena that the caller gave;
 * single thread. */
#include "cli/run/file/problems.h"
#include "cli/run/file/types.h"
#include "common/base/arena.h"
#include "common/model/info/ref.h"

/* Problems in *p: none, and *out is whole. run_file_fini either way; arena is the caller's. */
void run_file_parse(struct str text, struct arena *arena, struct run_file *out,
                    struct run_problems *p);
void run_file_fini(struct run_file *f);
/* The text of a file, with its bound. */
MUST_USE enum status run_file_read(const char *path, struct strbuf *text, struct error *err);
/* The gateway's port, or that of a run's `monitoring`: 0 none. */
uint16_t run_file_prometheus_port(const struct run_file *f);
/* Is that model fetched into the cache before `cox up`? Not one that it streams. */
bool run_file_pulls(const struct run_file *f, const struct model_ref *ref);
