#pragma once
/* Plans the models of a `cox up` that serves several, before any process starts. */
#include "cli/up/prepare/machine.h"
#include "cli/up/set/read.h"

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
void set_run_free(struct set_run *r); /* accepts NULL */
