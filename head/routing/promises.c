/* Decides about promised times of the first token. admission.c asks `promises_admit` when it has
 * chosen a replica and before the request enters its scheduler, so everything in front of the
 * request is there already. dispatch.c reports plans, results and first tokens.
 *
 * The prediction is that of head/promise/first_token.h, with the costs of the slot's own steps.
 * A request without a promise costs nothing but two additions when it is placed.
 *
 * Invariants: everything runs on the loop thread. A promise is decided once. A request that
 * returns after a loss, or continues an answer, is never refused here. */
#include "head/routing/promises.h"

#include <math.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "head/scheduler/outlook.h"
#include "head/state/requests.h"

/* PROMISE_RATE_NS is the time over which arrivals are averaged. */
#define PROMISE_RATE_NS (4.0 * NS_PER_S)

/* MUCH is a rate of arriving prompt tokens, per ns, that fills every step, in prompts of
 * MUCH_PROMPT tokens. */
#define MUCH        1.0
#define MUCH_PROMPT 256.0

enum { RETRY_MOST_S = 60 };

/* ---- what is learnt ---- */

void promises_on_plan(struct engine_slot *l, const struct msg_plan *plan)
{
    struct step_work w = {0};
    for (uint32_t i = 0; i < plan->n_runs; i++) {
        const struct plan_run *x = &plan->runs[i];
        const double n = x->n_tokens + x->n_draft;
        w.n_rows += x->sample + x->n_draft;
        w.n_tokens += x->n_tokens - x->sample;
        w.n_context += n * (x->start + n / 2);
    }
    l->work[plan->step % ENGINE_SLOT_STEPS] = w;
}

/* The time of a step is the time since the result before it, or since its plan was made if no
 * step ran then. It contains the ways of plan and result as far as they delay a token. */
void promises_on_result(struct head_core *h, struct engine_slot *l, const struct msg_result *m)
{
    uint64_t ns = h->now_ns - l->activity_ns;
    if (m->execute_ns == 0) /* the device reports no times */
        return;
    /* two results that arrive together have one time */
    ns = ns > m->execute_ns ? ns : m->execute_ns;
    step_cost_on_result(&l->cost, &l->work[m->step % ENGINE_SLOT_STEPS], (double)ns);
}

static void decay_arrivals(const struct head_core *h, struct engine_slot *l)
{
    double keep = exp(-(double)(h->now_ns - l->arrivals_ns) / PROMISE_RATE_NS);
    l->n_arrivals *= keep;
    l->n_arrived_tokens *= keep;
    l->arrivals_ns = h->now_ns;
}

void promises_placed(struct head_core *h, const struct request *r, struct engine_slot *l)
{
    decay_arrivals(h, l);
    l->n_arrivals++;
    l->n_arrived_tokens += r->n_ids > r->n_hit ? r->n_ids - r->n_hit : 1;
}

/* ---- a prediction ---- */

/* Returns the rest of the steps in flight. A step that is late is expected to be as late again. */
static struct first_token_flight flight_of(const struct head_core *h, const struct engine_slot *l)
{
    struct first_token_flight f = {0};
    double passed = (double)(h->now_ns - l->activity_ns);
    for (uint64_t step = l->last_result + 1; step <= l->last_step && f.n < FIRST_TOKEN_FLIGHT;
         step++) {
        double ns = step_cost_ns(&l->cost, &l->work[step % ENGINE_SLOT_STEPS]);
        if (f.n == 0)
            ns = passed < ns ? ns - passed : passed - ns;
        f.left_ns[f.n++] = ns;
    }
    return f;
}

/* Returns the expected time from now to the first token. Fills what the other two predictions
 * need. */
static double predict(const struct head_core *h, const struct request *r, struct engine_slot *l,
                      struct first_token_work *w, struct first_token_flight *f)
{
    scheduler_outlook(l->scheduler, r, w);
    w->mean_answer = h->mean_generated;
    decay_arrivals(h, l);
    w->later_tokens = l->n_arrived_tokens / PROMISE_RATE_NS;
    w->later_requests = l->n_arrivals / PROMISE_RATE_NS;
    *f = flight_of(h, l);
    return first_token_ns(w, &l->cost, f);
}

/* Returns the expected time to the first token if later requests use nothing, or with `full` all,
 * of what the request leaves of each step. */
static double predict_beside(const struct engine_slot *l, const struct first_token_work *w,
                             const struct first_token_flight *f, bool full)
{
    struct first_token_work x = *w;
    x.later_tokens = full ? MUCH : 0;
    x.later_requests = full ? MUCH / MUCH_PROMPT : 0;
    return first_token_ns(&x, &l->cost, f);
}

/* ---- guards ---- */

void promises_begin_pass(struct head_core *h)
{
    h->promises.pass++;
    h->promises.n_guarded = 0;
}

void promises_end_pass(struct head_core *h)
{
    h->promises.pass++; /* no slot is shut any more */
}

/* Returns true while later requests could break this promise, and would wait for no more than
 * its prompt: the next plan is not made yet, or the prompt runs. */
static bool still_guards(const struct head_core *h, const struct engine_slot *l,
                         const struct promise_guard *g)
{
    const struct request *r = request_table_find(h->requests, g->id, g->i_choice);
    return r && r->i_replica == l->replica->index && r->promise.state == PROMISE_MADE &&
           h->now_ns < g->until_ns && scheduler_prompt_left(r) > 0 &&
           (r->state == REQUEST_RUNNING || l->last_step == g->after_step);
}

static void drop_guards(const struct head_core *h, struct engine_slot *l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_guards; i++) {
        if (still_guards(h, l, &l->guards[i]))
            l->guards[n++] = l->guards[i];
    }
    l->n_guards = n;
}

/* Guards the promise if later requests could break it and the request is next. Otherwise they
 * would wait for as long as the request waits in its own tenant's queue. left_ns: time until the
 * promise is broken. */
static void guard(const struct head_core *h, struct engine_slot *l, const struct request *r,
                  const struct first_token_work *w, const struct first_token_flight *f,
                  double left_ns)
{
    if (!first_token_is_next(w) || predict_beside(l, w, f, true) <= left_ns)
        return;
    const struct promise_guard g = {.id = r->id,
                                    .i_choice = r->i_choice,
                                    .priority = r->priority,
                                    .spare_ns = left_ns - predict_beside(l, w, f, false),
                                    .until_ns = h->now_ns + (uint64_t)left_ns,
                                    .after_step = l->last_step};
    drop_guards(h, l);
    if (l->n_guards < PROMISE_GUARDS) {
        l->guards[l->n_guards++] = g;
        return;
    }
    struct promise_guard *widest = &l->guards[0];
    for (uint32_t i = 1; i < PROMISE_GUARDS; i++)
        widest = l->guards[i].spare_ns > widest->spare_ns ? &l->guards[i] : widest;
    if (widest->spare_ns > g.spare_ns)
        *widest = g;
}

/* Returns how much longer a step takes with the request's prompt in it, ns. */
static double added_ns(const struct engine_slot *l, const struct request *r)
{
    double n = r->n_ids > r->n_hit ? r->n_ids - r->n_hit : 1;
    const struct step_work w = {1, n - 1, n * (r->n_hit + n / 2)};
    return step_cost_added_ns(&l->cost, &w);
}

static bool returns(const struct request *r)
{
    return r->resubmitted || r->state == REQUEST_PREEMPTED;
}

bool promises_shut(const struct head_core *h, const struct engine_slot *l, const struct request *r)
{
    return l->guarded_pass == h->promises.pass && r->priority >= l->guarded_class && !returns(r);
}

bool promises_shut_out(const struct head_core *h, const struct request *r, bool any)
{
    uint32_t n = 0;
    for (uint32_t i = 0; h->promises.n_guarded > 0 && i < h->n_live; i++)
        n += promises_shut(h, &h->engine_slots[h->live[i]], r);
    return n > 0 && (any || n == h->n_live);
}

static void shut(struct head_core *h, struct engine_slot *l, int32_t priority)
{
    const bool first = l->guarded_pass != h->promises.pass;
    h->promises.n_guarded += first;
    l->guarded_pass = h->promises.pass;
    l->guarded_class = first || priority < l->guarded_class ? priority : l->guarded_class;
}

bool promises_let_in(struct head_core *h, const struct request *r, struct engine_slot *l)
{
    if (l->n_guards == 0)
        return true;
    drop_guards(h, l);
    const double ns = added_ns(l, r);
    for (uint32_t i = 0; i < l->n_guards && !returns(r); i++) {
        const struct promise_guard *g = &l->guards[i];
        if (ns > g->spare_ns && r->priority >= g->priority)
            shut(h, l, g->priority);
    }
    if (promises_shut(h, l, r))
        return false;
    for (uint32_t i = 0; i < l->n_guards; i++)
        l->guards[i].spare_ns -= ns;
    return true;
}

/* ---- decisions ---- */

uint32_t promises_retry_after_s(const struct request_promise *p)
{
    uint32_t late_ms = p->predicted_ms > p->slo_ms ? p->predicted_ms - p->slo_ms : 0;
    uint32_t s = 1 + late_ms / 1000;
    return s < RETRY_MOST_S ? s : RETRY_MOST_S;
}

void promises_refuse(struct head_core *h, const struct request_promise *p, char *out, size_t size)
{
    h->promises.n_refused++;
    snprintf(out, size,
             "the first token is predicted after %u ms, but the request allows %u ms. Try again "
             "later, or allow more time",
             p->predicted_ms, p->slo_ms);
}

bool promises_admit(struct head_core *h, struct request *r, struct engine_slot *l)
{
    struct request_promise *p = &r->promise;
    if (p->state != PROMISE_ASKED)
        return true;
    p->state = PROMISE_MADE;
    if (!step_cost_is_known(&l->cost)) {
        h->promises.n_unknown++;
        p->predicted_ms = 0; /* the time of a start (submit.c) is no prediction */
        return true;
    }
    struct first_token_work w;
    struct first_token_flight f;
    const double waited_ns = (double)(h->now_ns - r->arrival_ns);
    const double ms = (predict(h, r, l, &w, &f) + waited_ns) / NS_PER_MS;
    p->predicted_ms = ms < 1 ? 1 : ms < UINT32_MAX ? (uint32_t)(ms + 0.5) : UINT32_MAX;
    if (p->predicted_ms <= p->slo_ms) {
        h->promises.n_accepted++;
        guard(h, l, r, &w, &f, (double)p->slo_ms * NS_PER_MS - waited_ns);
        return true;
    }
    char text[sizeof r->text];
    p->state = PROMISE_NONE;
    promises_refuse(h, p, text, sizeof text);
    r->retry_after_s = promises_retry_after_s(p);
    requests_end(h, r, FINISH_ERROR, STATUS_LIMIT, text);
    return false;
}

void promises_on_first_token(struct head_core *h, struct request *r)
{
    struct request_promise *p = &r->promise;
    if (p->state != PROMISE_MADE || request_n_generated(r) == 0)
        return;
    const double ms = (double)(h->now_ns - r->arrival_ns) / NS_PER_MS;
    *(ms <= p->slo_ms ? &h->promises.n_kept : &h->promises.n_missed) += 1;
    if (h->promises.ratio && p->predicted_ms > 0)
        metric_observe(h->promises.ratio, ms / p->predicted_ms);
    p->state = PROMISE_NONE;
}
