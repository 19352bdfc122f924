/* Lets the models of a set come, run and leave. A watch (set/watch.h) for each head wakes the loop;
 * `look` passes its answers to the decisions (set/demand.h), and set_models_act carries out the
 * orders through the supervisor.
 * Invariants: workers of a model run only while its state in `demand` is not OFF. A model that has
 * failed never starts again, and no other model notices. A removed model keeps its processes until
 * no gateway knows its name and no request is open. */
#include "cli/up/several/models.h"

#include <stdio.h>

#include "cli/up/set/leave.h"
#include "cli/up/several/rest.h"
#include "cli/up/several/slot.h"
#include "cli/up/several/state.h"
#include "cli/up/several/views.h"
#include "common/base/clock.h"

void set_models_changed(struct set_run *r)
{
    set_run_write_names(r);
    if (r->on_change)
        r->on_change(r->ctx);
}

void set_model_fail(struct set_run *r, uint32_t i, const char *why)
{
    struct running_model *m = &r->models[i];
    struct error err;
    snprintf(m->failed, sizeof m->failed, "%s", why);
    demand_fail(&r->demand, i);
    supervisor_leave_model(r->supervisor, i + 1, UP_WORKER, true);
    supervisor_leave_model(r->supervisor, i + 1, UP_HEAD, true);
    supervisor_say(r->supervisor,
                   "warning: the model %s has failed and stays off; the other models go on. %s",
                   r->models[i].model->name, why);
    if (set_run_write_file(r, &err) != STATUS_OK)
        supervisor_say(r->supervisor, "warning: %s", err.text);
    set_models_changed(r);
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
            set_model_fail(r, i, err.text);
            return;
        }
    }
}

/* Carries out the decisions. */
void set_models_act(struct set_run *r)
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
        set_models_changed(r);
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
    set_models_act(r);
    if (!was_ready && set_run_is_ready(r))
        set_models_changed(r);
}

bool set_model_watch(struct set_run *r, uint32_t i)
{
    struct running_model *m = &r->models[i];
    m->watch =
        set_watch_start(&(struct set_watch_options){.loop = r->loop,
                                                    .admin = m->admin,
                                                    .admin_key_file = m->model->o->admin_key_file,
                                                    .on_change = look,
                                                    .ctx = m});
    if (!m->watch)
        set_model_fail(r, i, "no thread can be started that watches its head");
    return m->watch != NULL;
}

/* ---- models that come and leave ---- */

void set_model_expect(struct set_run *r, uint32_t i)
{
    const struct up_plan *plan = &r->models[i].plan;
    for (uint32_t k = 0; r->spares && k < plan->n_children; k++)
        if (plan->children[k].role == UP_WORKER)
            spares_expect(r->spares, plan->children[k].argv);
}

void set_model_arrive(struct set_run *r, uint32_t i)
{
    struct running_model *m = &r->models[i];
    struct error err = {0};
    set_slot_begin_demand(r, i);
    for (uint32_t k = 0; k < m->plan.n_children && !m->failed[0]; k++)
        if (m->plan.children[k].role == UP_HEAD &&
            supervisor_add(r->supervisor, &m->plan.children[k], &err) != STATUS_OK)
            set_model_fail(r, i, err.text);
    if (!m->failed[0])
        (void)set_model_watch(r, i);
    set_model_expect(r, i);
    supervisor_say(r->supervisor, "the model %s was added, cox status --address %s", m->model->name,
                   m->admin);
}

void set_model_leave(struct set_run *r, uint32_t i)
{
    struct running_model *m = &r->models[i];
    m->slot = SLOT_LEAVES;
    m->left_ns = clock_mono_ns();
    r->demand.models[i].always = false; /* its memory is for the models that stay */
    supervisor_say(r->supervisor, "the model %s was removed; its open requests end first",
                   m->model->name);
}

/* Returns true when the processes of a removed model may end. */
static bool may_end(struct set_run *r, struct running_model *m, uint64_t now_ns)
{
    struct set_heard now;
    if (m->failed[0])
        return true;
    set_watch_look(m->watch, &now); /* m->heard is as old as the last news */
    const enum set_leave step = set_leave_decide(&now, m->left_ns, now_ns);
    if (step == SET_LEAVE_SLOW && !m->is_slow) {
        m->is_slow = true;
        supervisor_say(r->supervisor,
                       "the removed model %s still has %u open requests; they end at the latest %d "
                       "minutes after the removal",
                       m->model->name, now.n_open, SET_LEAVE_MAX_S / 60);
    } else if (step == SET_LEAVE_LATE) {
        supervisor_say(r->supervisor,
                       "warning: the removed model %s ends with %u open requests, because they did "
                       "not end within %d minutes",
                       m->model->name, now.n_open, SET_LEAVE_MAX_S / 60);
    }
    return step == SET_LEAVE_END || step == SET_LEAVE_LATE;
}

/* Moves a removed model on: its workers end, then its head, then its slot is free. */
static bool end_left(struct set_run *r, uint32_t i, uint64_t now_ns)
{
    struct running_model *m = &r->models[i];
    if (!r->demand.models[i].failed && !may_end(r, m, now_ns))
        return false;
    if (!r->demand.models[i].failed) {
        demand_fail(&r->demand, i);
        supervisor_leave_model(r->supervisor, i + 1, UP_WORKER, true);
    }
    if (r->demand.models[i].state != DEMAND_OFF)
        return false;
    supervisor_leave_model(r->supervisor, i + 1, UP_HEAD, true);
    if (!supervisor_forget_model(r->supervisor, i + 1))
        return false;
    set_slot_free(r, i);
    return true;
}

bool set_models_end_left(struct set_run *r)
{
    bool any = false;
    for (uint32_t i = 0; i < SET_SLOTS_MAX; i++)
        if (r->models[i].slot == SLOT_LEAVES)
            any = end_left(r, i, clock_mono_ns()) || any;
    return any;
}

void set_models_arrived(struct set_run *r)
{
    struct error err = {0};
    if (set_run_write_file(r, &err) != STATUS_OK)
        supervisor_say(r->supervisor, "warning: %s", err.text);
    set_models_changed(r);
}
