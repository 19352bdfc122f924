#pragma once
/* Runs the models of a `cox up` that serves several: starts and ends workers as the heads need
 * them, and gives up on a model that cannot start. plan.h comes before, and views.h shows the
 * models. Only the loop thread calls these functions. */
#include "cli/up/process/supervisor.h"
#include "common/loop/loop.h"

struct set_run;

/* Begins to watch the heads. `spares` are told of the workers; NULL = none. `on_change` is called
 * when set_run_is_ready or set_run_failure may have changed. */
void set_run_start(struct set_run *r, struct loop *loop, struct supervisor *s,
                   struct spares *spares, loop_fn *on_change, void *ctx);
/* Decides for supervisor_options.on_model_ended. */
bool set_run_ended(struct set_run *r, const struct up_child *c, bool gives_up, const char *why);
/* Stops to watch, at the beginning of a shutdown. */
void set_run_stop(struct set_run *r);
