#pragma once
/* Fetches a missing MODEL of another program's command line (cli/pull/ensure.h). `cox worker`
 * and `cox gateway` call it before they execute that program. Commands that start a `cox up`
 * call it too. That program's own parser reports a wrong command line. */
#include <stdbool.h>
#include <stddef.h>

#include "cli/pull/ensure.h"

struct arena;
struct speculation_options;
struct worker_options;

/* Fetches MODEL and the draft model of the speculation options (NULL = none). */
MUST_USE enum status model_fetch(const struct pull_ensure *e, const char *model,
                                 const struct speculation_options *o, bool *was_fetched,
                                 struct error *err);

/* Adds the revision (NULL = none) to a MODEL from a hub. *out is `model` itself, or a string on
 * the arena. Models from other places have no revisions. For such a model only "main" is
 * accepted, since vLLM's command lines may always give "main". */
MUST_USE enum status model_with_revision(const char *model, const char *revision,
                                         struct arena *arena, const char **out, struct error *err);
/* Fetches the MODEL of a worker's command line. Returns an exit code; EXIT_FINE = the caller
 * continues. Errors have been printed. */
int model_fetch_for_worker(int argc, char **argv);
int model_fetch_for_gateway(int argc, char **argv);
int model_fetch_for_workers(const struct worker_options *o);
/* Fetches MODEL for the `cox up` that the command is about to start, with its options. */
MUST_USE enum status model_fetch_for_up(const char *command, const char *model,
                                        const char *const *args, size_t n_args, struct error *err);
