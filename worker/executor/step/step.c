/* Executes a step, in one call or in two, on the compute thread. `begin` applies the plan, makes
 * draft tokens, runs the passes and samples. `finish` waits for the results and makes the
 * Result. When the device samples, `begin` only enqueues. A sequence then gets a place for an id
 * that only the device knows (`is_pending`), and the next step's rows read it on the device.
 * Draft tokens, bad words of several ids, and sampling on the host need the ids on the host and
 * wait for them (docs/develop/runner.md, "Two steps in flight").
 *
 * Invariants: at most EXECUTOR_MAX_IN_FLIGHT steps are in flight, in a ring. No part of a
 * refused plan is executed. A sequence may leave before its id arrives, so an item finds the
 * sequence by slot and serial number. */
#include "worker/executor/step/step.h"

#include <assert.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "worker/executor/device_loss.h"
#include "worker/executor/ranks.h"
#include "worker/executor/step/adapters.h"
#include "worker/executor/step/append.h"
#include "worker/executor/step/device_sample.h"
#include "worker/executor/step/draft.h"
#include "worker/executor/step/host_sample.h"
#include "worker/executor/step/pipeline_ids.h"
#include "worker/executor/step/pool.h"
#include "worker/executor/step/prompt_logprobs.h"
#include "worker/grammar/grammars.h"

/* LOOK_NS is the interval of checks of the other ranks during a wait for the device alone, in
 * ns. */
enum { LOOK_NS = 1000000 };
enum { SPIN_TURNS = 2000, NAP_NS = 20000 };

static struct executor_model *of(struct executor *e)
{
    return (struct executor_model *)e;
}

static struct step_in_flight *step_at(struct executor_model *x, uint32_t i)
{
    return &x->steps.in_flight[(x->steps.i_oldest + i) % EXECUTOR_MAX_IN_FLIGHT];
}

/* ---- ids to the host ---- */

/* Appends the id of item i on a rank that does not sample, whose device received the id from the
 * sampling rank. */
static enum status take_told(struct executor_model *x, struct step_in_flight *s, uint32_t i,
                             struct error *err)
{
    uint32_t id = x->device_sampler->host_last[s->i_sampler][s->items[i].slot];
    if (id >= x->info.limits.vocab_size)
        return error_set(err, STATUS_INVALID,
                         "rank %u sampled token %u for slot %u, which is outside the vocabulary of "
                         "%u tokens. Report this bug",
                         x->ranks.comms.sampling_rank, id, s->items[i].slot,
                         x->info.limits.vocab_size);
    s->sampled.ids[i] = id;
    return STATUS_OK;
}

static enum status take_items(struct executor_model *x, struct step_in_flight *s, struct error *err)
{
    struct sampled *d = &s->sampled;
    for (uint32_t i = 0; i < d->n_items; i++) {
        const struct item_in_flight *it = &s->items[i];
        struct sequence *q = sequences_find(x->sequences, it->slot);
        if (executor_is_sampling_rank(x))
            TRY(executor_take_sampled(x, s, i, it->logprobs, err));
        else
            TRY(take_told(x, s, i, err));
        if (q && q->serial == it->serial) {
            q->ids[it->position] = d->ids[i];
            q->is_pending = q->is_pending && it->position + 1 < q->n_ids;
        }
        d->items[i] = (struct result_item){.slot = it->slot,
                                           .ids = {d->ids + i, 1},
                                           .logprobs = it->logprobs ? d->logprobs + i : NULL,
                                           .n_logprobs = it->logprobs,
                                           .gaps = {d->gaps + i, 1},
                                           .vector = it->vector};
    }
    return STATUS_OK;
}

static enum status take_drafted(struct executor_model *x, struct step_in_flight *s,
                                struct error *err)
{
    uint32_t at = 0;
    for (uint32_t i = 0; executor_is_sampling_rank(x) && i < s->runs.n; i++) {
        const struct sequence_run *r = &s->runs.ptr[i];
        bool logprobs = r->q->sampling.n_logprobs >= 0;
        for (uint32_t n = r->sample && r->n_tokens > 0 ? r->n_drafted + 1 : 0; n > 0; n--)
            TRY(executor_take_sampled(x, s, at++, logprobs, err));
    }
    return executor_append_sampled(x, s->runs, &s->sampled, err);
}

struct pending_step {
    const struct executor_model *x;
    const struct step_in_flight *s;
};

/* Returns STATUS_AGAIN while the step runs, and STATUS_TIMEOUT when it has been the oldest step
 * on the device for longer than stuck_ns. */
static enum status has_sampled(void *ctx, struct error *err)
{
    const struct executor_model *x = ((const struct pending_step *)ctx)->x;
    const struct step_in_flight *s = ((const struct pending_step *)ctx)->s;
    uint64_t from = s->enqueued_ns > x->steps.finished_ns ? s->enqueued_ns : x->steps.finished_ns;
    enum status st = x->device_sampler->ops->query(x->device_sampler, s->i_sampler, err);
    if (st == STATUS_AGAIN && clock_mono_ns() > from + x->loss.stuck_ns)
        return error_set(err, STATUS_TIMEOUT,
                         "the device hangs: step %llu did not end within %.0f s",
                         (unsigned long long)s->step, (double)x->loss.stuck_ns / NS_PER_S);
    return st;
}

/* Waits for the step of a single rank. It polls, because an interrupt is only a flag and would
 * not end a blocking wait. */
static enum status await_device(struct executor_model *x, struct pending_step *a, struct error *err)
{
    enum status s;
    for (uint32_t n = 0; (s = has_sampled(a, err)) == STATUS_AGAIN; n++) {
        if (atomic_load(&x->interrupted))
            return error_set(err, STATUS_CLOSED, "interrupted");
        if (n >= SPIN_TURNS)
            (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        executor_bump(&x->base);
    }
    return s;
}

/* Waits for the step. The event only shows that the device is done, not that the step's sums are
 * right. A collective that ended because a peer ended reaches its event too. */
static enum status await_sampled(struct executor_model *x, const struct step_in_flight *s,
                                 struct error *err)
{
    struct pending_step a = {x, s};
    if (x->ranks.in->wait)
        TRY(x->ranks.in->wait(x, has_sampled, &a, err));
    else
        TRY(await_device(x, &a, err));
    /* the call returns at once */
    return x->device_sampler->ops->wait(x->device_sampler, s->i_sampler, err);
}

static enum status resolve_step(struct executor_model *x, struct step_in_flight *s,
                                struct error *err)
{
    if (!s->on_device)
        return STATUS_OK;
    TRY(await_sampled(x, s, err));
    if (atomic_load(&x->interrupted)) /* an aborted collective ends too, with wrong numbers */
        return error_set(err, STATUS_CLOSED, "interrupted");
    TRY(s->sampled.drafted ? take_drafted(x, s, err) : take_items(x, s, err));
    if (executor_is_sampling_rank(x))
        executor_take_prompt_logprobs(x, s);
    s->on_device = false;
    return STATUS_OK;
}

/* Waits for the ids of all steps in flight. */
static enum status resolve_steps(struct executor_model *x, struct error *err)
{
    for (uint32_t i = 0; i < x->steps.n_in_flight; i++)
        TRY(resolve_step(x, step_at(x, i), err));
    return STATUS_OK;
}

/* Waits for the ids of the steps with draft tokens, because the number of accepted draft tokens
 * decides the runs of the next plan. */
static enum status resolve_drafts(struct executor_model *x, struct error *err)
{
    for (uint32_t i = 0; i < x->steps.n_in_flight; i++)
        if (step_at(x, i)->sampled.drafted)
            TRY(resolve_step(x, step_at(x, i), err));
    return STATUS_OK;
}

/* ---- begin ---- */

static enum status device_sample_pass(struct executor_model *x, struct step_in_flight *s,
                                      struct error *err)
{
    TRY(executor_device_prompt_logprobs_pass(x, s, err));
    return executor_device_sample_pass(x, s, &s->sampled, err);
}

static enum status sample_pass(struct executor_model *x, struct step_in_flight *s,
                               struct error *err)
{
    TRY(executor_prompt_logprobs_pass(x, s, err));
    return executor_sample_pass(x, s->arena, &s->sampled, err);
}

static enum status run_pass(struct executor_model *x, struct step_in_flight *s, struct error *err)
{
    struct sampled *sampled = &s->sampled;
    if (x->device_sampler)
        executor_mark_pending(x);
    else
        TRY(executor_find_pending(x, err));
    TRY(runner_forward(x->engine->runner, &x->batch.rows, err));
    if (executor_is_sampling_rank(x))
        TRY(executor_pool_pass(x, s->arena, err));
    if (program_is_last(x->engine->program))
        TRY(s->on_device ? device_sample_pass(x, s, err) : sample_pass(x, s, err));
    return executor_tells_by_pass(x, sampled) ? executor_end_pass(x, sampled, err) : STATUS_OK;
}

/* Adds a place for the pending id of each run that samples. Each such run has one id, since
 * there are no draft tokens. */
static enum status add_places(struct executor_model *x, struct step_in_flight *s,
                              struct sequence_runs runs, struct error *err)
{
    s->items =
        arena_try_array(s->arena, s->sampled.n_items ? s->sampled.n_items : 1, sizeof *s->items);
    if (!s->items)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for %u results. Free memory on this machine",
                         s->sampled.n_items);
    for (uint32_t i = 0, n = 0; i < runs.n; i++) {
        struct sequence *q = runs.ptr[i].q;
        if (!runs.ptr[i].sample)
            continue;
        s->items[n++] = (struct item_in_flight){.slot = q->slot,
                                                .position = q->n_ids,
                                                .serial = q->serial,
                                                .logprobs = q->sampling.n_logprobs >= 0,
                                                .vector = q->vector};
        TRY(executor_append_id(x, q, 0, err));
        q->is_pending = true;
    }
    return STATUS_OK;
}

/* Returns the number of slots up to the highest that samples; 0 = nothing is sampled. */
static uint32_t n_slots_of(struct sequence_runs runs)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < runs.n; i++)
        if (runs.ptr[i].sample && runs.ptr[i].q->slot >= n)
            n = runs.ptr[i].q->slot + 1;
    return n;
}

static enum status run_passes(struct executor_model *x, struct step_in_flight *s,
                              struct sequence_runs runs, struct error *err)
{
    if (s->on_device)
        x->device_sampler->ops->begin(x->device_sampler, s->i_sampler);
    batch_begin(&x->batch, runs);
    while (batch_next(&x->batch))
        TRY(run_pass(x, s, err));
    if (s->on_device) {
        bool is_sampling_rank = executor_is_sampling_rank(x);
        uint32_t n_slots = n_slots_of(runs);
        s->runs = runs;
        TRY(executor_share_last(x, n_slots, err));
        TRY(x->device_sampler->ops->end(
            x->device_sampler, s->i_sampler,
            is_sampling_rank ? s->sampled.n_done + s->prompt_logprobs.n_done : 0,
            is_sampling_rank ? 0 : n_slots, err));
        return s->sampled.drafted ? STATUS_OK : add_places(x, s, runs, err);
    }
    if (!executor_tells_by_pass(x, &s->sampled))
        return executor_append_sampled(x, runs, &s->sampled, err);
    if (executor_is_sampling_rank(x))
        executor_put_items(&s->sampled, runs);
    return STATUS_OK;
}

/* Returns false when a run that samples has no rows, because its sequence has reached its end.
 * No id will be sampled for such a run. */
static bool all_have_places(struct sequence_runs runs)
{
    for (uint32_t i = 0; i < runs.n; i++)
        if (runs.ptr[i].sample && runs.ptr[i].n_tokens == 0)
            return false;
    return true;
}

static bool wants_drafts(struct sequence_runs runs)
{
    for (uint32_t i = 0; i < runs.n; i++)
        if (runs.ptr[i].n_draft > 0)
            return true;
    return false;
}

static enum status begin(struct executor_model *x, const struct msg_plan *p,
                         struct step_in_flight *s, struct error *err)
{
    TRY(executor_check_adapters(x, p, err));
    TRY(resolve_drafts(x, err));
    TRY(executor_resolve_ids_for(x, p, err));
    if (x->host.grammars) {
        grammars_prepare(x->host.grammars);
        grammars_leave(x->host.grammars, p);
    }
    TRY(sequences_apply(x->sequences, p, err));
    executor_take_adapters(x, p);
    struct sequence_runs runs = sequences_runs(x->sequences);
    if (wants_drafts(runs) || (x->device_sampler && executor_needs_ids(runs)))
        TRY(resolve_steps(x, err));
    for (uint32_t i = 0; i < p->n_copies; i++)
        kv_store_copy(x->engine->kv, &p->copies[i]);
    TRY(executor_propose(x, p, runs, s->arena, err));
    s->on_device =
        x->device_sampler && executor_device_can_sample(x, runs) && all_have_places(runs);
    if (!s->on_device)
        TRY(resolve_steps(x, err));
    TRY(sampled_init(&s->sampled, runs, s->arena, err));
    TRY(step_prompt_logprobs_init(x, s, runs, err));
    TRY(run_passes(x, s, runs, err));
    for (uint32_t i = 0; i < runs.n; i++)
        s->n_drafted += runs.ptr[i].n_drafted;
    executor_bump(&x->base);
    return STATUS_OK;
}

enum status executor_begin(struct executor *e, const struct msg_plan *p, struct arena *arena,
                           struct error *err)
{
    struct executor_model *x = of(e);
    assert(x->steps.n_in_flight < EXECUTOR_MAX_IN_FLIGHT);
    uint32_t at = (x->steps.i_oldest + x->steps.n_in_flight) % EXECUTOR_MAX_IN_FLIGHT;
    x->steps.in_flight[at] = (struct step_in_flight){.term_epoch = p->term_epoch,
                                                     .step = p->step,
                                                     .begun_ns = clock_mono_ns(),
                                                     .i_sampler = at,
                                                     .arena = arena};
    atomic_store(&x->loss.entered_ns, clock_mono_ns());
    enum status s = begin(x, p, &x->steps.in_flight[at], err);
    atomic_store(&x->loss.entered_ns, 0);
    x->steps.in_flight[at].enqueued_ns = clock_mono_ns();
    executor_look_at_device(x, s, err);
    x->steps.n_in_flight += s == STATUS_OK;
    return s;
}

/* ---- finish ---- */

bool executor_is_due(struct executor *e)
{
    struct executor_model *x = of(e);
    const struct step_in_flight *s = step_at(x, 0);
    struct error err;
    assert(x->steps.n_in_flight > 0);
    if (!s->on_device || atomic_load(&x->interrupted))
        return true;
    if (has_sampled(&(struct pending_step){x, s}, &err) != STATUS_AGAIN)
        return true;
    uint64_t now_ns = clock_mono_ns();
    if (now_ns - x->steps.looked_ns < LOOK_NS)
        return false;
    x->steps.looked_ns = now_ns;
    if (x->ranks.in->look && x->ranks.in->look(x, &err) != STATUS_OK)
        return true; /* finish reports the error */
    /* a slow device is progress too; only the deadline or a check of the ranks ends a hung step */
    executor_bump(e);
    return false;
}

enum status executor_finish(struct executor *e, struct msg_result *out, struct error *err)
{
    struct executor_model *x = of(e);
    struct step_in_flight *s = step_at(x, 0);
    enum status st = s->on_device && atomic_load(&x->interrupted)
                         ? error_set(err, STATUS_CLOSED, "interrupted")
                         : resolve_step(x, s, err);
    uint64_t now_ns = clock_mono_ns();
    uint64_t from_ns = s->begun_ns > x->steps.finished_ns ? s->begun_ns : x->steps.finished_ns;
    x->steps.i_oldest = (x->steps.i_oldest + 1) % EXECUTOR_MAX_IN_FLIGHT;
    x->steps.n_in_flight--;
    x->steps.finished_ns = now_ns;
    executor_look_at_device(x, st, err);
    if (st != STATUS_OK)
        return st;
    executor_bump(e);
    *out = (struct msg_result){.term_epoch = s->term_epoch,
                               .step = s->step,
                               .n_drafted = s->n_drafted,
                               .execute_ns = now_ns - from_ns};
    if (!s->on_device) { /* on a GPU the host cannot distinguish work from waiting */
        uint64_t waited_ns = x->ranks.collectives.spent_ns - x->steps.spent_seen_ns;
        x->steps.spent_seen_ns = x->ranks.collectives.spent_ns;
        executor_worked(e, out->execute_ns > waited_ns ? out->execute_ns - waited_ns : 0);
    }
    if (executor_is_sampling_rank(x)) {
        bool has_logprobs = s->prompt_logprobs.n_rows > 0;
        if (has_logprobs)
            step_prompt_logprobs_put_items(&s->prompt_logprobs, s->sampled.items);
        out->items = has_logprobs ? s->prompt_logprobs.items : s->sampled.items;
        out->n_items = has_logprobs ? s->prompt_logprobs.n_items : s->sampled.n_items;
    }
    return STATUS_OK;
}

enum status executor_step(struct executor *e, const struct msg_plan *p, struct arena *arena,
                          struct msg_result *out, struct error *err)
{
    TRY(executor_begin(e, p, arena, err));
    return executor_finish(e, out, err);
}

void executor_drop_steps(struct executor_model *x)
{
    x->steps.n_in_flight = 0;
    executor_await_device(x); /* the device must not use memory that is about to be reused */
}
