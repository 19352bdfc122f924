#pragma once
/* Reads a run file from its text only: no file, no process, no environment. Therefore, the check
 * gives the same result on every machine. All strings are allocated on the caller's arena. Only
 * one thread calls these functions. */
#include "cli/run/file/problems.h"
#include "cli/run/file/types.h"
#include "common/base/arena.h"
#include "common/model/info/ref.h"

/* Parses the text. When *p has no problems, *out is complete. The caller calls run_file_fini in
 * both cases, and owns the arena. */
void run_file_parse(struct str text, struct arena *arena, struct run_file *out,
                    struct run_problems *p);
void run_file_fini(struct run_file *f);
/* Reads the text of a file, up to RUN_FILE_MAX_BYTES. */
MUST_USE enum status run_file_read(const char *path, struct strbuf *text, struct error *err);
/* Returns the port that prometheus scrapes for a run's `monitoring`; 0 = none. */
uint16_t run_file_prometheus_port(const struct run_file *f);
/* Returns true when the model is fetched into the cache before `cox up`. A streamed model is not
 * fetched into the cache. */
bool run_file_pulls(const struct run_file *f, const struct model_ref *ref);
