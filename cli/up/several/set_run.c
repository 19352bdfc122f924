/* Runs the models of a `cox up` that serves several, after plan.c has planned them. A watch
 * (set/watch.h) for each head wakes the loop; `look` passes the answers to the decisions
 * (set/demand.h), and `act` carries out the orders through the supervisor. A timer sees idle
 * times pass and workers end.
 * Invariants: workers of a model run only while the model's state in `demand` is not OFF. A model
 * that has failed never starts again, and no other model notices. Only the loop thread uses the
 * struct. */
#include "cli/up/several/set_run.h"

#include <stdio.h>
#include <string.h>

#include "cli/up/several/rest.h"
#include "cli/up/several/state.h"
#include "cli/up/several/views.h"
#include "common/base/clock.h"

enum { TICK_MS = 50, TRIES = 3 };

static void changed(struct set_run *r)
{
    set_run_write_names(r);
    if (r->on_change)
        r->on_change(r->ctx);
}

static void fail(struct set_run *r, uint32_t i, const char *why)
{
    struct running_model *m = &r->models[i];
    struct error err;
    snprintf(m->failed, sizeof m->failed, "%s", why);
    demand_fail(&r->demand, i);
    supervisor_leave_model(r->supervisor, i + 1, UP_WORKER, true);
    supervisor_leave_model(r->supervisor, i + 1, UP_HEAD, true);
    supervisor_say(r->supervisor,
                   "warning: the model %s has failed and stays off; the other models go on. %s",
                   r->set.models[i].name, why);
    if (set_run_write_file(r, &err) != STATUS_OK)
        supervisor_say(r->supervisor, "warning: %s", err.text);
    changed(r);
}

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
    fail(r, i, why);
    return false;
}

static void start_workers(struct set_run *r, uint32_t i)
{
    struct running_model *m = &r->models[i];
    struct error err;
    if (m->has_workers) {
        supervisor_leave_model(r->supervisor, i + 1, UP_WORKER, false);
        return;
    }
    m->has_workers = true;
    for (uint32_t k = 0; k < m->plan.n_children; k++) {
        const struct up_child *c = &m->plan.children[k];
        if (c->role == UP_WORKER && supervisor_add(r->supervisor, c, &err) != STATUS_OK) {
            fail(r, i, err.text);
            return;
        }
    }
}

/* Carries out the decisions. */
static void act(struct set_run *r)
{
    bool any = false;
    for (struct demand_order o; !r->is_stopping;) {
        o = demand_decide(&r->demand, clock_mono_ns());
        if (o.act == DEMAND_NOTHING)
            break;
        any = true;
        if (o.act == DEMAND_START)
            start_workers(r, o.model);
        set_rest_order(r, &o);
    }
    if (any)
        changed(r);
}

/* Passes the news of a head to the decisions. */
static void look(void *ctx)
{
    struct running_model *m = ctx;
    struct set_run *r = m->r;
    uint32_t i = (uint32_t)(m - r->models);
    bool was_ready = set_run_is_ready(r);
    if (r->is_stopping || m->failed[0])
        return;
    set_watch_look(m->watch, &m->heard);
    if (m->heard.n_replicas > 0)
        m->has_served = true;
    set_rest_look(r, i);
    if (m->heard.is_known)
        demand_heard(&r->demand, i, m->heard.wanted > 0, m->heard.n_open > 0,
                     (uint64_t)(m->heard.unused_s * (double)NS_PER_S), clock_mono_ns());
    set_watch_hurry(m->watch, m->heard.n_replicas == 0 || r->demand.models[i].state != DEMAND_ON);
    act(r);
    if (!was_ready && set_run_is_ready(r))
        changed(r);
}

static void on_tick(void *ctx)
{
    struct set_run *r = ctx;
    bool any = false;
    for (uint32_t i = 0; i < r->set.n && !r->is_stopping; i++) {
        set_rest_wake(r, i);
        if (r->demand.models[i].state == DEMAND_ENDING && !supervisor_runs(r->supervisor, i + 1)) {
            demand_ended(&r->demand, i);
            any = true;
        }
    }
    act(r);
    if (any)
        changed(r);
}

void set_run_start(struct set_run *r, struct loop *loop, struct supervisor *s, loop_fn *on_change,
                   void *ctx)
{
    r->supervisor = s;
    r->on_change = on_change;
    r->ctx = ctx;
    for (uint32_t i = 0; i < r->set.n; i++) {
        struct running_model *m = &r->models[i];
        const struct up_options *o = r->set.models[i].o;
        m->has_workers = o->start == UP_START_ALWAYS;
        m->watch = set_watch_start(&(struct set_watch_options){.loop = loop,
                                                               .admin = m->admin,
                                                               .admin_key_file = o->admin_key_file,
                                                               .on_change = look,
                                                               .ctx = m});
        if (!m->watch)
            fail(r, i, "no thread can be started that watches its head");
        else if (o->start == UP_START_ON_DEMAND)
            demand_heard(&r->demand, i, true, false, 0, clock_mono_ns());
    }
    r->timer = loop_timer_start(loop, TICK_MS, TICK_MS, on_tick, r);
    act(r);
    for (uint32_t i = 0; i < r->set.n; i++) /* the others begin with their first request */
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
