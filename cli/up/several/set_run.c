/* Starts and ends the models of a `cox up` that serves several, after plan.c has planned them.
 * models.c reacts to their heads, and change.c to changes of the set. A timer sees idle times pass
 * and processes end. Only the loop thread uses the struct. */
#include "cli/up/several/set_run.h"

#include <stdio.h>
#include <string.h>

#include "cli/up/several/change.h"
#include "cli/up/several/models.h"
#include "cli/up/several/rest.h"
#include "cli/up/several/state.h"
#include "common/base/clock.h"

enum { TICK_MS = 50, TRIES = 3 };

/* Counts the end of a process. A fault that ends all ranks at once counts once for each. */
static uint32_t count_try(struct running_model *m, const struct up_child *c)
{
    for (uint32_t i = 0; i < m->plan.n_children; i++)
        if (strcmp(m->plan.children[i].name, c->name) == 0)
            return ++m->n_tries[i];
    return TRIES;
}

bool set_run_ended(struct set_run *r, const struct up_child *c, bool gives_up, const char *why)
{
    uint32_t i = c->model - 1;
    struct running_model *m = &r->models[i];
    if (m->failed[0])
        return false;
    if (c->role == UP_WORKER && set_rest_lost(r, i, why))
        return false;
    if (m->has_served || (!gives_up && count_try(m, c) < TRIES))
        return true;
    set_model_fail(r, i, why);
    return false;
}

static void on_tick(void *ctx)
{
    struct set_run *r = ctx;
    bool any = false;
    for (uint32_t i = 0; i < SET_SLOTS_MAX && !r->is_stopping; i++) {
        set_rest_wake(r, i);
        if (r->demand.models[i].state == DEMAND_ENDING && !supervisor_runs(r->supervisor, i + 1)) {
            demand_ended(&r->demand, i);
            any = true;
        }
    }
    if (!r->is_stopping) {
        any = set_models_end_left(r) || any;
        set_changes_look(r);
    }
    set_models_act(r);
    if (any)
        set_models_changed(r);
}

void set_run_start(struct set_run *r, struct loop *loop, struct supervisor *s,
                   struct spares *spares, loop_fn *on_change, void *ctx)
{
    r->supervisor = s;
    r->spares = spares;
    r->loop = loop;
    set_changes_start(r);
    r->on_change = on_change;
    r->ctx = ctx;
    for (uint32_t i = 0; i < r->now->set.n; i++) {
        struct running_model *m = &r->models[i];
        const struct up_options *o = r->models[i].model->o;
        m->has_workers = o->start == UP_START_ALWAYS;
        set_model_expect(r, i);
        if (set_model_watch(r, i) && o->start == UP_START_ON_DEMAND)
            demand_heard(&r->demand, i, true, false, 0, clock_mono_ns());
    }
    r->timer = loop_timer_start(loop, TICK_MS, TICK_MS, on_tick, r);
    set_models_act(r);
    for (uint32_t i = 0; i < r->now->set.n; i++) /* the others begin with their first request */
        if (r->demand.models[i].state == DEMAND_OFF)
            demand_heard(&r->demand, i, false, false, 0, clock_mono_ns());
}

void set_run_stop(struct set_run *r)
{
    r->is_stopping = true;
    loop_timer_stop(r->timer);
    r->timer = NULL;
}

/* ---- views ---- */
