#include "tests/sim/sim_internal.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"

static bool fail(struct world *w, const char *what)
{
    error_set(w->err, STATUS_INTERNAL, "%s", what);
    return false;
}

/* ---- clients ---- */

static void begin_oracle(struct client *c)
{
    null_hash_init(&c->oracle, c->sampling.seed, c->sampling.i_prompt, c->sampling.i_choice,
                   c->sampling.temperature);
    for (uint32_t i = 0; i < c->n_prompt; i++)
        null_hash_push(&c->oracle, c->ids[i]);
}

/* Makes the request of what the client has so far and gives it to table and scheduler. */
static bool submit(struct world *w, struct client *c, uint32_t attempt)
{
    struct msg_submit m = {
        .id = {.hi = 1, .lo = c->i_request},
        .i_choice = c->sampling.i_choice,
        .attempt = attempt,
        .tenant = c->tenant,
        .priority = (int32_t)below(w, 3),
        .n_prompt = c->n_prompt,
        .ids = {c->ids, c->n_prompt + c->n_seen},
        .deadline_ms = percent(w, 5) ? between(w, 1, 2000) : 0,
        .sampling = c->sampling,
    };
    m.sampling.eos_ids = (struct u32_span){&c->eos_id, c->eos_id != 0};
    m.sampling.stop_ids = (struct u32_span){&c->stop_id, c->stop_id != 0};
    if (request_new(&m, MAX_MODEL_LEN, w->now_ns, &c->r, w->err) != STATUS_OK)
        return false;
    c->r->arrival_seq = ++w->arrivals;
    c->r->i_gateway = (uint32_t)(c - w->clients);
    if (request_table_add(w->table, c->r) != STATUS_OK)
        return fail(w, "the request table refuses a new request");
    return true;
}

static void forget(struct world *w, struct client *c)
{
    request_table_remove(w->table, c->r);
    request_free(c->r);
    c->r = NULL;
    c->live = false;
}

static bool to_scheduler(struct world *w, struct client *c)
{
    c->came_back = c->r->resubmitted;
    enum status st = scheduler_add(w->scheduler, c->r);
    if (st == STATUS_OK)
        return true;
    if (c->r->resubmitted && st == STATUS_LIMIT)
        return fail(w, "a resubmission was refused for load");
    w->report->n_refused++;
    forget(w, c);
    return true;
}

static struct client *free_client(struct world *w)
{
    for (uint32_t i = 0; i < w->n_clients; i++)
        if (!w->clients[i].live)
            return &w->clients[i];
    return NULL;
}

/* One request: a prompt and some answers to it. */
static bool arrive(struct world *w)
{
    struct client *c = free_client(w), first;
    if (!c)
        return true;
    draw_client(w, c);
    first = *c;
    uint32_t n_choices = percent(w, w->choices_percent) ? between(w, 2, 5) : 1;
    for (uint32_t i = 0; i < n_choices && (c = free_client(w)) != NULL; i++) {
        *c = first;
        c->live = true;
        c->sampling.i_choice = i;
        begin_oracle(c);
        w->report->n_requests++;
        if (!submit(w, c, 1) || !to_scheduler(w, c))
            return false;
    }
    return true;
}

/* The client goes away, or its gateway comes back with what it has: to a head that forgot it, or to
 * one that goes on with it. */
static bool disturb(struct world *w, struct client *c)
{
    if (percent(w, 30)) {
        c->r->resubmitted = true;
        return true;
    }
    uint32_t attempt = c->r->attempt;
    scheduler_remove(w->scheduler, c->r);
    request_enter(c->r, REQUEST_CANCELLED);
    if (percent(w, 50)) {
        w->report->n_cancelled++;
        forget(w, c);
        return true;
    }
    forget(w, c);
    c->live = true;
    w->report->n_resubmitted++;
    return submit(w, c, attempt + 1) && to_scheduler(w, c);
}

/* ---- tokens ---- */

static enum finish_reason expected_end(const struct client *c)
{
    uint32_t last = c->ids[c->n_prompt + c->n_seen - 1];
    bool stops = c->n_seen > 0 && (last == c->stop_id || last == c->eos_id);
    uint32_t min_tokens =
        c->sampling.min_tokens < c->max_tokens ? c->sampling.min_tokens : c->max_tokens;
    if (stops && c->n_seen >= min_tokens)
        return FINISH_STOP;
    return c->n_seen == c->max_tokens ? FINISH_LENGTH : FINISH_NONE;
}

static struct client *client_of(struct world *w, const struct request *r)
{
    struct client *c = &w->clients[r->i_gateway];
    return c->live && c->r == r ? c : NULL;
}

static bool take_event(struct world *w, const struct scheduler_event *e)
{
    struct client *c = client_of(w, e->request);
    if (!c || e->n_new == 0)
        return fail(w, "an event of a request that is not live, or without a token");
    if (request_n_generated(c->r) != c->n_seen + e->n_new)
        return fail(w, "an event counts its tokens wrongly");
    for (uint32_t i = 0; i < e->n_new; i++) {
        if (c->n_seen && expected_end(c) != FINISH_NONE)
            return fail(w, "tokens beyond the end");
        uint32_t want = null_hash_token(&c->oracle, VOCAB_SIZE);
        if (c->r->ids[c->n_prompt + c->n_seen] != want)
            return fail(w, "a token differs from the null rule");
        null_hash_push(&c->oracle, want);
        c->ids[c->n_prompt + c->n_seen++] = want;
    }
    w->report->n_tokens += e->n_new;
    if (c->r->finish != expected_end(c) || e->ended != (c->r->finish != FINISH_NONE))
        return fail(w, "the request ends wrongly, or does not end");
    if (!e->ended)
        return true;
    if (c->r->sched || c->r->state != REQUEST_FINISHED)
        return fail(w, "an ended request is still in the scheduler");
    w->report->n_stopped += c->r->finish == FINISH_STOP;
    w->report->n_length += c->r->finish == FINISH_LENGTH;
    forget(w, c);
    return true;
}

static bool deliver(struct world *w)
{
    struct msg_result m = w->in_flight[0];
    const struct scheduler_event *events;
    uint32_t n_events;
    w->in_flight[0] = w->in_flight[1];
    w->n_in_flight--;
    if (w->c.step_target_ns) /* without rhyme or reason: the budget jumps between all and nothing */
        m.execute_ns = (uint64_t)between(w, 0, 100) * STEP_TARGET_NS / between(w, 1, 100);
    if (scheduler_on_result(w->scheduler, &m, w->now_ns, &events, &n_events, w->err) != STATUS_OK)
        return false;
    w->report->n_discarded += m.n_items - n_events;
    for (uint32_t i = 0; i < n_events; i++)
        if (!take_event(w, &events[i]))
            return false;
    return true;
}

static bool pop_ended(struct world *w)
{
    struct request *r;
    while ((r = scheduler_pop_ended(w->scheduler)) != NULL) {
        struct client *c = client_of(w, r);
        if (!c)
            return fail(w, "a request ended twice");
        if (r->finish == FINISH_TIMEOUT ? r->deadline_ns > w->now_ns : r->finish != expected_end(c))
            return fail(w, "a request ended in the scheduler for a wrong reason");
        w->report->n_timeouts += r->finish == FINISH_TIMEOUT;
        forget(w, c);
    }
    return true;
}

/* ---- steps ---- */

/* Served first: nobody who runs goes before it. */
static struct request *oldest_running(const struct world *w)
{
    const struct client *best = NULL;
    for (uint32_t i = 0; i < w->n_clients; i++) {
        const struct client *c = &w->clients[i];
        if (!c->live || c->r->state != REQUEST_RUNNING)
            continue;
        if (!best || c->r->priority < best->r->priority ||
            (c->r->priority == best->r->priority &&
             (c->came_back > best->came_back ||
              (c->came_back == best->came_back && c->r->arrival_seq < best->r->arrival_seq))))
            best = c;
    }
    return best ? best->r : NULL;
}

/* A better class may take the place of whoever runs. */
static bool has_better_class(const struct world *w, const struct request *r)
{
    for (uint32_t i = 0; i < w->n_clients; i++)
        if (w->clients[i].live && w->clients[i].r->priority < r->priority)
            return true;
    return false;
}

static bool worker_agrees(struct world *w, const struct msg_plan *plan, const struct msg_result *m)
{
    uint32_t i_item = 0;
    if (sequences_apply(w->worker, plan, w->err) != STATUS_OK)
        return false;
    struct sequence_runs runs = sequences_runs(w->worker);
    for (uint32_t i = 0; i < runs.n; i++) {
        const struct sequence_run *run = &runs.ptr[i];
        if (!run->sample)
            continue;
        struct u32_span ids = m->items[i_item++].ids;
        if ((run->n_tokens == 0) != (ids.n == 0) || ids.n > 1 + run->n_draft)
            return fail(w, "the worker would have drawn another number of tokens");
        for (uint32_t k = 0; k < ids.n; k++)
            if (!sequence_push(run->q, ids.ptr[k], MAX_MODEL_LEN))
                return fail(w, "a token is drawn beyond the model's length");
    }
    return i_item == m->n_items || fail(w, "the worker would have drawn for others");
}

static bool step(struct world *w)
{
    struct scheduler_stats stats;
    for (;;) {
        struct request *oldest = oldest_running(w);
        const struct msg_plan *plan = scheduler_step(w->scheduler, w->now_ns);
        if (oldest && oldest->state == REQUEST_PREEMPTED && !has_better_class(w, oldest))
            return fail(w, "the oldest running sequence was preempted");
        scheduler_get_stats(w->scheduler, &stats);
        if (!plan)
            break;
        if (stats.in_flight > w->c.depth)
            return fail(w, "more steps in flight than the depth");
        w->report->n_steps++;
        w->n_steps++;
        w->report->n_digests += plan->digest != 0;
        struct msg_result *m = &w->in_flight[w->n_in_flight++];
        if (!sim_rank_execute(w->rank, plan, plan->step - stats.in_flight, m, w->err) ||
            !worker_agrees(w, plan, m))
            return false;
    }
    if (stats.in_flight != w->n_in_flight)
        return fail(w, "the scheduler counts its steps in flight wrongly");
    if (!pop_ended(w))
        return false;
    for (uint32_t i = 0; i < w->n_clients; i++)
        if (w->clients[i].live && w->clients[i].r->deadline_ns &&
            w->clients[i].r->deadline_ns <= w->now_ns)
            return fail(w, "a request outlives its deadline");
    if (w->n_in_flight == 0 && request_table_count(w->table) > 0)
        return fail(w, "nothing runs, nothing is in flight, and requests wait");
    return true;
}

static void add_stats(struct world *w)
{
    struct scheduler_stats stats;
    scheduler_get_stats(w->scheduler, &stats);
    w->report->n_preemptions += stats.n_preemptions;
    w->report->hit_tokens += stats.prefix_hit_tokens;
    w->report->query_tokens += stats.prefix_query_tokens;
    w->report->n_drafted += stats.n_drafted;
    w->report->n_accepted += stats.n_accepted;
    w->report->n_copied += stats.n_copied_blocks;
}

struct handed {
    struct world *w;
    uint64_t last_arrival;
    uint32_t n;
    bool ok;
};

static void take_back(void *ctx, struct request *r)
{
    struct handed *h = ctx;
    if (r->state == REQUEST_RUNNING || r->sched || r->arrival_seq <= h->last_arrival)
        h->ok = fail(h->w, "scheduler_reset hands a request back wrongly");
    h->last_arrival = r->arrival_seq;
    h->n++;
    client_of(h->w, r)->came_back = r->resubmitted;
    if (scheduler_add(h->w->scheduler, r) == STATUS_OK)
        return;
    if (r->resubmitted)
        h->ok = fail(h->w, "a resubmission was refused after a reset");
    h->w->report->n_refused++;
    forget(h->w, client_of(h->w, r));
}

/* A rank was lost: new epoch, results in flight never come. */
static bool lose_rank(struct world *w)
{
    struct handed h = {.w = w, .ok = true};
    uint32_t n = request_table_count(w->table);
    w->report->n_resets++;
    w->n_in_flight = 0;
    w->term_epoch += 1 + below(w, 3);
    sim_rank_reset(w->rank, w->term_epoch);
    if (sequences_reset(w->worker, (struct u32_span){0}, w->err) != STATUS_OK)
        return false;
    scheduler_reset(w->scheduler, w->term_epoch, take_back, &h);
    if (h.ok && h.n != n)
        return fail(w, "scheduler_reset lost a request");
    return h.ok;
}

static bool check(struct world *w)
{
    struct error err;
    if (w->large && ++w->n_unchecked < CHECK_EVERY_LARGE)
        return true;
    w->n_unchecked = 0;
    return scheduler_check(w->scheduler, &err) || fail(w, err.text);
}

static bool turn(struct world *w, bool arrivals)
{
    w->now_ns += between(w, 1, 20) * NS_PER_MS;
    if (arrivals && percent(w, w->arrival_percent))
        for (uint32_t n = between(w, 1, w->burst); n; n--)
            if (!arrive(w))
                return false;
    for (uint32_t i = 0; i < w->n_clients && arrivals; i++)
        if (w->clients[i].live && below(w, 1000) < w->cancel_permille &&
            !disturb(w, &w->clients[i]))
            return false;
    if (arrivals && below(w, 1000) < w->reset_permille && !lose_rank(w))
        return false;
    if (!step(w))
        return false;
    if (!check(w))
        return false;
    while (w->n_in_flight && percent(w, w->deliver_percent))
        if (!deliver(w))
            return false;
    if (!check(w))
        return false;
    w->report->n_turns++;
    return true;
}

static bool all_free(struct world *w)
{
    struct scheduler_stats stats;
    struct scheduler_load load;
    scheduler_get_stats(w->scheduler, &stats);
    scheduler_get_load(w->scheduler, &load);
    add_stats(w);
    if (stats.running || stats.waiting || stats.in_flight || stats.n_blocks_used ||
        load.n_prompt_tokens)
        return fail(w, "drained, but the scheduler still holds something");
    return true;
}

static bool run_world(struct world *w, uint64_t n_steps, uint64_t *i_turn)
{
    /* by recompute, work can be lost again and again, but each turn serves the oldest one */
    uint64_t patience = n_steps * IDLE_TURNS_PER_STEP + (uint64_t)w->n_clients * 40 * MAX_MODEL_LEN;
    if (scheduler_new(&w->c, &w->scheduler, w->err) != STATUS_OK || !lose_rank(w))
        return false;
    for (*i_turn = 0; *i_turn < patience; (*i_turn)++) {
        bool arrivals = w->n_steps < n_steps;
        if (!arrivals && request_table_count(w->table) == 0 && w->n_in_flight == 0)
            return all_free(w);
        if (!turn(w, arrivals))
            return false;
    }
    return fail(w, "the group does not drain");
}

bool sim_run(uint64_t seed, uint64_t n_steps, struct sim_report *report, struct error *err)
{
    struct world *w = mem_zalloc(sizeof *w);
    struct error inner = {0};
    uint64_t i_turn = 0;
    w->seed = seed;
    w->rng.state = seed;
    w->report = report;
    w->err = &inner;
    draw_world(w);
    struct sim_rank_config rc = {.max_num_seqs = w->c.max_num_seqs,
                                 .max_num_batched_tokens = w->c.max_num_batched_tokens,
                                 .max_model_len = MAX_MODEL_LEN,
                                 .vocab_size = VOCAB_SIZE,
                                 .kv_groups = w->c.kv_groups,
                                 .n_kv_groups = w->c.n_kv_groups,
                                 .n_draft = w->c.n_draft,
                                 .draft_max_seqs = w->c.draft_max_seqs,
                                 .draft_percent = between(w, 0, 4) * 25};
    w->rank = sim_rank_new(&rc);
    struct sequences_limits limits = {
        .max_model_len = MAX_MODEL_LEN, .vocab_size = VOCAB_SIZE, .n_kv_groups = w->c.n_kv_groups};
    memcpy(limits.kv_groups, w->c.kv_groups, sizeof limits.kv_groups);
    w->worker = sequences_new(&limits);
    w->n_clients = w->large ? MAX_LIVE_LARGE : MAX_LIVE;
    w->clients = mem_array(w->n_clients, sizeof *w->clients);
    w->table = request_table_new(w->n_clients);
    bool ok = run_world(w, n_steps, &i_turn);
    if (!ok)
        error_set(err, STATUS_INTERNAL, "seed %llu, turn %llu: %s", (unsigned long long)seed,
                  (unsigned long long)i_turn, inner.text);
    scheduler_free(w->scheduler);
    request_table_free(w->table);
    sim_rank_free(w->rank);
    sequences_free(w->worker);
    mem_free(w->clients);
    mem_free(w);
    return ok;
}
