/* Carries out rests and sleep for the models of one `cox up`. `set_rest_look` compares what a head
 * says with the state that the model has in `demand`; `set_rest_order` passes the decisions on.
 * Invariants: memory is given to another model only after all workers of a model sleep, or have
 * ended. A process of a sleeping model never starts again, since it would load weights. Only the
 * loop thread calls these functions. */
#include "cli/up/several/rest.h"

#include "cli/up/several/state.h"
#include "common/base/clock.h"

void set_rest_plan(const struct set_run *r, uint32_t i, struct demand_model *m)
{
    const struct set_need *need = &r->models[i].model->need;
    m->idle_level = (enum demand_level)r->models[i].model->o->idle_sleep_level;
    for (int k = 1; k <= 2; k++)
        m->asleep_bytes[k - 1] = set_asleep_bytes(&r->memory, need, k);
}

static void end_workers(struct set_run *r, uint32_t i)
{
    supervisor_leave_model(r->supervisor, i + 1, UP_WORKER, true);
}

void set_rest_order(struct set_run *r, const struct demand_order *o)
{
    struct running_model *m = &r->models[o->model];
    bool sleeps = o->level == DEMAND_LEVEL_KV || o->level == DEMAND_LEVEL_WEIGHTS;
    if (o->act == DEMAND_WAKE || (o->act == DEMAND_START && m->heard.held))
        set_watch_wake(m->watch);
    if (o->act == DEMAND_REST) {
        set_watch_hurry(m->watch, true); /* another model waits for the memory */
        set_watch_rest(m->watch, sleeps ? o->level : 0);
    } else if (o->act == DEMAND_END)
        end_workers(r, o->model);
}

void set_rest_wake(struct set_run *r, uint32_t i)
{
    struct running_model *m = &r->models[i];
    if (r->demand.models[i].state == DEMAND_ON && m->heard.is_known && m->heard.held)
        set_watch_wake(m->watch);
}

/* Reports whether the workers sleep, or serve although they should not. */
static void look_at_sleep(struct set_run *r, uint32_t i)
{
    const struct running_model *m = &r->models[i];
    const struct demand_model *d = &r->demand.models[i];
    if (!m->heard.held && m->heard.n_replicas > 0)
        demand_serves(&r->demand, i);
    else if (m->heard.held && m->heard.asleep && m->heard.sleep_level >= d->goal)
        demand_slept(&r->demand, i, m->heard.n_asleep >= m->plan.n_workers);
}

void set_rest_look(struct set_run *r, uint32_t i)
{
    struct running_model *m = &r->models[i];
    const struct demand_model *d = &r->demand.models[i];
    if (m->heard.rest_answers > m->n_rests) {
        m->n_rests = m->heard.rest_answers;
        demand_rested(&r->demand, i, m->heard.rests, clock_mono_ns());
    }
    if (m->heard.is_known)
        look_at_sleep(r, i);
    if (d->state == DEMAND_ENDING)
        end_workers(r, i);
}

bool set_rest_lost(struct set_run *r, uint32_t i, const char *why)
{
    if (!demand_lost(&r->demand, i))
        return false;
    supervisor_say(r->supervisor, "%s. The model %s sleeps, so it stops until its next request",
                   why, r->models[i].model->name);
    end_workers(r, i);
    return true;
}
