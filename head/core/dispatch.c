/* Sends plans to ranks and handles their results.
 *
 * `dispatch_turn` asks the scheduler of each due engine slot for a plan, encodes it once and
 * sends it to every rank under that rank's session and sequence number. `dispatch_on_result`
 * passes a result to the scheduler and puts new tokens into outboxes. The cluster reports READY
 * and lost replicas through the handlers of `cluster_fns`.
 *
 * Invariants: everything runs on the loop thread. An engine slot has a scheduler only while its
 * replica is READY. While a rank has no credit, the plan stays pending and no further plan is
 * made, so every rank gets the same steps in the same order. */
#include "head/core/dispatch.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/cluster/formation.h"
#include "head/record/step_log.h"
#include "head/request/request.h"
#include "head/routing/grammars.h"
#include "head/routing/promises.h"
#include "head/routing/roles.h"
#include "head/routing/route.h"
#include "head/routing/transfers.h"
#include "head/state/engine_slots.h"
#include "head/state/outbox.h"
#include "head/state/requests.h"
#include "head/state/served_model.h"

static struct engine_slot *engine_slot_of(const struct head_core *h, const struct replica *g)
{
    return &h->engine_slots[g->index];
}

static void ignore_request(void *ctx, struct request *r)
{
}

/* CPU_CHUNK_TOKENS and CPU_STEP_TARGET_MS are limits for replicas on CPUs, where a step with the
 * whole token budget takes ten seconds. A few hundred rows share one read of the weights as well
 * as thousands do. A window group also has to hold the window and the largest chunk of every
 * sequence. */
enum { CPU_CHUNK_TOKENS = 256, CPU_STEP_TARGET_MS = 250 };

static void suit_device(const struct head_core *h, enum device_kind device,
                        struct scheduler_config *c)
{
    bool by_device = h->config.step_target_ns == STEP_TARGET_BY_DEVICE;
    c->step_target_ns = by_device ? 0 : h->config.step_target_ns;
    if (device != DEVICE_CPU)
        return;
    if (by_device)
        c->step_target_ns = CPU_STEP_TARGET_MS * NS_PER_MS;
    if (c->long_prefill_token_threshold == 0)
        c->long_prefill_token_threshold = CPU_CHUNK_TOKENS;
}

/* Starts the costs of a slot's steps with those of its last replica, or of another live one. */
static void start_cost(const struct head_core *h, struct engine_slot *l)
{
    const struct step_cost *like = l->cost.n_results > 0 ? &l->cost : NULL;
    for (uint32_t i = 0; !like && i < h->n_live; i++)
        if (h->engine_slots[h->live[i]].cost.n_results > 0)
            like = &h->engine_slots[h->live[i]].cost;
    step_cost_init(&l->cost, like);
}

void dispatch_on_ready(void *core, struct replica *g)
{
    struct head_core *h = core;
    struct engine_slot *l = engine_slot_of(h, g);
    struct error err = {0};
    struct scheduler_config c = {
        .max_num_batched_tokens = h->config.max_num_batched_tokens,
        .max_num_seqs = h->config.max_num_seqs,
        .max_waiting = h->config.max_requests,
        .long_prefill_token_threshold = h->config.long_prefill_token_threshold,
        .max_partial_prefills = h->config.max_partial_prefills,
        .max_model_len = g->max_model_len,
        .depth = h->config.depth,
        .n_draft = g->n_draft,
        .draft_max_seqs = g->draft_max_seqs,
        .usage = &h->usage,
        .enable_prefix_caching = h->config.enable_prefix_caching,
        .gives_prompt_logprobs = g->gives_prompt_logprobs,
        .n_kv_groups = g->n_kv_groups,
    };
    memcpy(c.kv_groups, g->kv_groups, sizeof c.kv_groups);
    suit_device(h, g->members[0]->desc.device, &c);
    if (scheduler_new(&c, &l->scheduler, &err) != STATUS_OK) {
        replica_dissolve(&h->cluster, g, err.text, true);
        return;
    }
    h->calm_since_ns = h->now_ns;
    l->most_tokens = scheduler_most_tokens(l->scheduler);
    if (!replica_is_shrunk(&h->cluster, g))
        g->most_tokens = l->most_tokens;
    step_log_replica(h->config.step_log, g->index, g->id, g->epoch, &c);
    scheduler_reset(l->scheduler, g->epoch, ignore_request, NULL);
    l->replica = g;
    l->n_running = l->n_queued = l->n_left = 0;
    step_time_init(&l->time, route_mean_speed(h));
    start_cost(h, l);
    l->role_trouble = ROLE_FINE;
    l->transfer = NULL;
    l->n_coming = 0;
    l->n_coming_tokens = 0;
    l->look_due = true;
    grammars_on_ready(h, l);
    engine_slots_add_live(h, g->index);
    served_model_update(h);
    roles_settle(h);
    l->due = true;
    l->plan_pending = false;
    l->last_step = l->last_result = 0;
    l->idle = true;
    l->activity_ns = h->now_ns;
}

/* Handles a request that left its scheduler without a result. Its deadline passed, memory was
 * missing, or it had ended before it arrived. */
static void take_ended(struct head_core *h, struct request *r)
{
    requests_leave_replica(r);
    bool failed = r->finish == FINISH_TIMEOUT || r->finish == FINISH_ERROR;
    *(failed ? &h->n_failed : &h->n_finished) += 1;
    if (r->finish == FINISH_TIMEOUT) {
        r->status = STATUS_TIMEOUT;
        snprintf(r->text, sizeof r->text, "The request did not end before its deadline.");
    }
    outbox_add(h, r);
}

static void pop_ended(struct head_core *h, struct engine_slot *l)
{
    for (struct request *r; (r = scheduler_pop_ended(l->scheduler)) != NULL;) {
        step_log_ended(h->config.step_log, l->replica->index, r);
        take_ended(h, r);
    }
}

/* Counts a loss for each request that ran when the replica was lost, since any of them may be
 * the cause. */
static void count_losses(struct head_core *h, const struct replica *g)
{
    h->calm_since_ns = h->now_ns;
    for (struct request *r = request_table_next(h->requests, NULL); r;
         r = request_table_next(h->requests, r)) {
        if (r->i_replica == g->index && r->state == REQUEST_RUNNING)
            request_count_loss(r, h->now_ns);
    }
}

static void hold_again(void *ctx, struct request *r)
{
    requests_hold(ctx, r);
}

void dispatch_on_down(void *core, struct replica *g)
{
    struct head_core *h = core;
    struct engine_slot *l = engine_slot_of(h, g);
    if (!l->scheduler)
        return; /* the replica never had a scheduler */
    pop_ended(h, l);
    transfers_on_down(h, g);
    if (g->lost_rank)
        count_losses(h, g);
    step_log_down(h->config.step_log, g->index);
    scheduler_reset(l->scheduler, g->epoch, hold_again, h);
    engine_slots_retire(h, l->scheduler);
    scheduler_free(l->scheduler);
    grammars_on_down(h, l);
    l->scheduler = NULL;
    l->replica = NULL;
    l->plan_pending = false;
    engine_slots_remove_live(h, g->index);
    engine_slots_count(h, l);
    served_model_update(h);
    roles_settle(h);
}

/* Returns true for the sampling rank, rank 0 of the last stage, which sends the results. */
static bool gives_results(const struct head_core *h, const struct replica *g,
                          const struct worker *w)
{
    return w->position == (h->config.cluster.pp - 1) * g->tp;
}

bool dispatch_may_go_on(void *core, const struct replica *g, const struct worker *w,
                        const struct worker_info *said)
{
    const struct head_core *h = core;
    const struct engine_slot *l = engine_slot_of(h, g);
    if (!l->scheduler)
        return false;
    /* The rank must have received every plan that was sent, and no result may be lost with the
     * old session. */
    uint64_t sent = w->plan_unsent ? l->last_step - 1 : l->last_step;
    if (transfers_owe(h, w))
        return false; /* a transfer's order or answer may be lost */
    return said->step_received == sent && (!gives_results(h, g, w) || l->last_result == sent);
}

bool dispatch_is_idle(void *core, const struct replica *g)
{
    const struct head_core *h = core;
    const struct engine_slot *l = engine_slot_of(h, g);
    struct scheduler_stats x = {0};
    if (l->scheduler)
        scheduler_get_stats(l->scheduler, &x);
    return x.running == 0 && x.in_flight == 0 && !transfers_leave(h, g);
}

/* ---- plans ---- */

/* Sends the pending plan. Returns true when every rank has it. */
static bool send_pending(struct head_core *h, struct engine_slot *l)
{
    bool all = true;
    for (uint32_t i = 0; i < l->replica->world; i++) {
        struct worker *w = l->replica->members[i];
        if (!w->plan_unsent)
            continue;
        if (peers_send_encoded(&h->peers, w->peer, MSG_PLAN, &l->plan) == STATUS_OK) {
            w->plan_unsent = false;
            /* the rank was idle until now, so its stuck time starts here */
            w->progress_ns = h->now_ns;
        } else {
            all = false;
        }
    }
    l->plan_pending = !all;
    return all;
}

static uint32_t count_tokens(const struct msg_plan *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_runs; i++)
        n += p->runs[i].n_tokens + p->runs[i].n_draft;
    return n;
}

static void count_left(struct engine_slot *l)
{
    struct scheduler_stats x;
    scheduler_get_stats(l->scheduler, &x);
    l->n_left = x.waiting;
}

static void pump(struct head_core *h, struct engine_slot *l)
{
    while (!l->plan_pending || send_pending(h, l)) {
        step_log_step(h->config.step_log, l->replica->index, h->now_ns);
        const struct msg_plan *plan = scheduler_step(l->scheduler, h->now_ns);
        step_log_plan(h->config.step_log, l->replica->index, plan);
        if (!plan) {
            l->idle = l->last_result == l->last_step;
            if (l->idle)
                count_left(l);
            return;
        }
        count_left(l);
        if (l->idle)
            l->step_after_idle = plan->step;
        l->idle = false;
        struct msg m = {.type = MSG_PLAN, .plan = *plan};
        if (peers_encode(&h->peers, &m, &l->plan) != STATUS_OK) {
            replica_dissolve(&h->cluster, l->replica, "a step's plan could not be encoded", true);
            return;
        }
        if (l->last_result == l->last_step)
            l->activity_ns = h->now_ns;
        l->last_step = plan->step;
        l->n_tokens[plan->step % ENGINE_SLOT_STEPS] = count_tokens(plan);
        promises_on_plan(l, plan);
        if (h->step_tokens)
            metric_observe(h->step_tokens, l->n_tokens[plan->step % ENGINE_SLOT_STEPS]);
        l->plan_pending = true;
        for (uint32_t i = 0; i < l->replica->world; i++)
            l->replica->members[i]->plan_unsent = true;
    }
}

void dispatch_turn(struct head_core *h)
{
    for (uint32_t i = 0; i < h->n_live; i++) {
        struct engine_slot *l = &h->engine_slots[h->live[i]];
        if (!l->due && !l->plan_pending)
            continue;
        l->due = false;
        pump(h, l);
        /* result handling dissolved the replica; index i now has another replica */
        if (!l->scheduler) {
            i--;
            continue;
        }
        pop_ended(h, l);
        engine_slots_count(h, l);
    }
}

/* ---- results ---- */

/* Returns true when the model's vocabulary has all of these tokens. A rank never samples another
 * token. */
static bool tokens_exist(const struct msg_result *m, uint32_t vocab_size)
{
    for (uint32_t i = 0; i < m->n_items; i++) {
        const struct u32_span *ids = &m->items[i].ids;
        for (uint32_t k = 0; k < ids->n; k++) {
            if (ids->ptr[k] >= vocab_size)
                return false;
        }
    }
    return true;
}

/* Records how long the rank was idle between the previous step and this one. Steps that begin
 * when there was no work are not counted. */
static void count_wait(struct head_core *h, uint64_t wait_ns)
{
    h->n_rank_waits++;
    h->rank_wait_ns += wait_ns;
    if (h->rank_wait)
        metric_observe(h->rank_wait, (double)wait_ns / (double)NS_PER_S);
}

void dispatch_on_result(struct head_core *h, struct worker *w, const struct msg_result *m)
{
    struct replica *g = w->replica;
    if (!g || g->state != REPLICA_READY || m->term_epoch != g->epoch || !gives_results(h, g, w))
        return; /* this is a result of an ended epoch */
    struct engine_slot *l = engine_slot_of(h, g);
    const struct scheduler_event *events = NULL;
    uint32_t n_events = 0;
    struct error err = {0};
    enum status s = STATUS_OK;
    if (!tokens_exist(m, g->vocab_size)) {
        s = error_set(&err, STATUS_PROTOCOL,
                      "the result of step %llu has a token id that is not below the vocabulary "
                      "size %u. The head forms the replica again",
                      (unsigned long long)m->step, g->vocab_size);
    } else {
        step_log_result(h->config.step_log, g->index, m, h->now_ns);
        s = scheduler_on_result(l->scheduler, m, h->now_ns, &events, &n_events, &err);
        step_log_done(h->config.step_log, g->index, s, events, n_events);
    }
    if (s != STATUS_OK) {
        cluster_add_failure(&h->cluster, w->peer->node, "bad_result", err.text);
        replica_dissolve(&h->cluster, g, err.text, true);
        return;
    }
    promises_on_result(h, l, m);
    l->due = l->look_due = true;
    l->last_result = m->step;
    l->activity_ns = h->now_ns;
    if (m->step != l->step_after_idle)
        count_wait(h, m->wait_ns);
    uint32_t n_ended = 0;
    for (uint32_t i = 0; i < n_events; i++)
        n_ended += events[i].ended;
    step_time_on_result(&l->time, l->n_tokens[m->step % ENGINE_SLOT_STEPS], n_ended, m->execute_ns,
                        h->now_ns);
    /* the replica works, so the next back-off starts at its shortest time again */
    g->n_failures = 0;
    for (uint32_t i = 0; i < n_events; i++) {
        struct request *r = events[i].request;
        if (i + REQUEST_PREFETCH_FAR < n_events)
            request_prefetch(events[i + REQUEST_PREFETCH_FAR].request);
        if (events[i].is_first || events[i].ended)
            promises_on_first_token(h, r);
        if (events[i].ended) {
            requests_leave_replica(r);
            route_ended(h, r);
            *(r->state == REQUEST_FINISHED ? &h->n_finished : &h->n_failed) += 1;
        }
        outbox_add(h, r);
    }
    h->grammars.n_results_meanwhile += n_events > 0 && h->grammars.n_waiting > 0;
}

/* Returns true when steps are in flight, no rank is busy, and there was no activity for
 * stall_ns. Only this check detects a lost result. */
static bool is_stalled(const struct head_core *h, const struct engine_slot *l)
{
    if (l->last_result == l->last_step || h->now_ns - l->activity_ns < h->config.stall_ns)
        return false;
    for (uint32_t i = 0; i < l->replica->world; i++) {
        const struct worker *w = l->replica->members[i];
        if (w->busy || w->plan_unsent || w->peer->suspect)
            return false;
    }
    return true;
}

void dispatch_tick(struct head_core *h)
{
    for (uint32_t i = 0; i < h->n_live; i++) {
        struct engine_slot *l = &h->engine_slots[h->live[i]];
        l->due = true; /* deadlines may have passed */
        if (!is_stalled(h, l))
            continue;
        replica_dissolve(&h->cluster, l->replica,
                         "all its ranks are idle, but a step's result is missing", true);
        i -= !l->scheduler;
    }
}

void dispatch_free(struct head_core *h)
{
    for (uint32_t i = 0; i < h->config.cluster.max_replicas; i++) {
        struct engine_slot *l = &h->engine_slots[i];
        if (l->scheduler) {
            step_log_down(h->config.step_log, l->replica->index);
            scheduler_reset(l->scheduler, 0, ignore_request, NULL);
            scheduler_free(l->scheduler);
            grammars_on_down(h, l);
        }
        strbuf_fini(&l->plan);
    }
    mem_free(h->engine_slots);
    mem_free(h->live);
    mem_free(h->routes);
}
