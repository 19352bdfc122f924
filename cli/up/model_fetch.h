#pragma once
/* Fetches a missing MODEL of another program's command line (cli/pull/ensure.h): for `cox
 * worker` and `cox gateway` before they become that program, and for commands that start a `cox
 * up`. A wrong command line is left to that program's own parser. */
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

/* Adds the revision (NULL = none) to MODEL of a hub. *out is `model` itself, or a string on the
 * arena. Other models have no revisions: only "main" is accepted there, since vLLM's command
 * lines may always give it. */
MUST_USE enum status model_with_revision(const char *model, const char *revision,
                                         struct arena *arena, const char **out, struct error *err);
/* Returns an exit code; EXIT_FINE = go on. Errors have been printed. */
int model_fetch_for_worker(int argc, char **argv);
int model_fetch_for_gateway(int argc, char **argv);
int model_fetch_for_workers(const struct worker_options *o);
/* Fetches MODEL for the `cox up` that the command is about to start, with its options. */
MUST_USE enum status model_fetch_for_up(const char *command, const char *model,
                                        const char *const *args, size_t n_args, struct error *err);
