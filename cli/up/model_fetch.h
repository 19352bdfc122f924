#pragma once
/* The MODEL of another program's command line, fetched where it is missing
 * (cli/pull/ensure.h): `cox worker` and `cox gateway` before they become that program, and
 * commands that start a `cox up`. A command line that is wrong is left to the program that it is
 * for. */
#include <stdbool.h>
#include <stddef.h>

#include "cli/pull/ensure.h"

struct arena;
struct speculation_options;
struct worker_options;

/* MODEL, and the draft model that the options of speculation name (NULL: none). */
MUST_USE enum status model_fetch(const struct pull_ensure *e, const char *model,
                                 const struct speculation_options *o, bool *was_fetched,
                                 struct error *err);

/* MODEL of a hub at that revision (NULL: as MODEL says); *out is model itself, or the arena's. A
 * model that is no hub's has none: "main" is let pass, as vLLM's command lines may say it of any.
 */
MUST_USE enum status model_with_revision(const char *model, const char *revision,
                                         struct arena *arena, const char **out, struct error *err);
/* An exit code; EXIT_FINE: go on. What is wrong has been said. */
int model_fetch_for_worker(int argc, char **argv);
int model_fetch_for_gateway(int argc, char **argv);
int model_fetch_for_workers(const struct worker_options *o);
/* MODEL and the options of the `cox up` that command is about to start. */
MUST_USE enum status model_fetch_for_up(const char *command, const char *model,
                                        const char *const *args, size_t n_args, struct error *err);
