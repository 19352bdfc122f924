#pragma once
/* Runs the models of a `cox up` that serves several: plans their memory and their processes,
 * starts and ends workers as the heads need them, and gives up on a model that cannot start. Only
 * the loop thread calls these functions. */
#include "cli/up/machine.h"
#include "cli/up/set/read.h"
#include "cli/up/supervisor.h"

struct set_run;

/* Reads the models (cli/up/set/read.h). *out is set after a failure too; set_run_free frees it.
 * STATUS_INVALID: a model, or an option that a cluster of several models does not have. */
MUST_USE enum status set_run_read(const struct set_input *in, struct arena *arena,
                                  struct set_run **out, struct error *err);
/* Fetches and checks each model. *has_not_come: a fetch failed; *fetched_ns: end of the last one,
 * 0 = nothing was fetched. */
MUST_USE enum status set_run_open(struct set_run *r, const char *command, const char *tmp_dir,
                                  struct arena *arena, bool *has_not_come, uint64_t *fetched_ns,
                                  struct error *err);
/* Plans memory, ports and command lines. `out` gets the processes of the start; `all` the
 * processes that may ever run, for the check of ports. The table of the memory is appended to
 * `table`, also when the models do not fit (STATUS_NO_MEMORY). Writes the gateways' file. */
MUST_USE enum status set_run_plan(struct set_run *r, const struct up_machine *m,
                                  struct up_plan *out, struct up_plan *all, struct strbuf *table,
                                  struct error *err);
/* Divides the memory among the models, for `cox plan`: after set_run_read, with no model opened and
 * no process started. bin_dir has `cox`, which measures a model that is only on a hub by its
 * headers. The table, or JSON, is appended to `out`, also when the models do not fit
 * (STATUS_NO_MEMORY). */
MUST_USE enum status set_run_memory(struct set_run *r, const char *bin_dir, bool as_json,
                                    struct strbuf *out, struct error *err);
/* Begins to watch the heads. `on_change` is called when set_run_is_ready or set_run_failure may
 * have changed. */
void set_run_start(struct set_run *r, struct loop *loop, struct supervisor *s, loop_fn *on_change,
                   void *ctx);
/* Decides for supervisor_options.on_model_ended. */
bool set_run_ended(struct set_run *r, const struct up_child *c, bool gives_up, const char *why);
/* Stops to watch, at the beginning of a shutdown. */
void set_run_stop(struct set_run *r);

/* Returns true when each `always` model serves or has failed, and each other head answers. */
bool set_run_is_ready(const struct set_run *r);
/* Returns why the last model has failed, when all models have failed; otherwise "". */
const char *set_run_failure(const struct set_run *r);
/* Formats "2 of 3 models ready, 4 s". */
void set_run_progress(const struct set_run *r, uint64_t since_ms, char *out, size_t size);
/* Returns the names with their states, "a, b (asleep), c (failed)". The text changes later. */
const char *set_run_names(const struct set_run *r);
/* Returns the name of the first model. */
const char *set_run_first_name(const struct set_run *r);
/* Appends a line for each model, with the address of its admin API. */
void set_run_print(const struct set_run *r, struct strbuf *out);
void set_run_free(struct set_run *r); /* accepts NULL */
