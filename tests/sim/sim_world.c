/* Implements the events of a simulated world, and checks the properties that must hold when they
 * happen (sim.h lists them). sim.c and head_scheduler_fuzz.c call the functions in any order:
 * requests arrive and are cancelled, plans are made and run by the simulated rank and by the
 * real worker's bookkeeping, results are delivered, ranks are lost. Each token is passed from
 * the scheduler's events to its client, which compares it with the null rule. A function returns
 * false when a property is violated, and err names the property. A client owns its request while
 * it is live. The scheduler and the request table borrow it. Random choices come only from the
 * world's seed or bytes. One thread runs everything. */
#include "tests/sim/sim_internal.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/request/prompt_logprobs.h"
#include "head/request/table.h"

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

/* Makes the request from the client's tokens so far, and adds it to the request table. */
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
        .n_known_logprobs = c->n_prompt_logprobs,
        .deadline_ms = percent(w, 5) ? between(w, 1, 2000) : 0,
        .sampling = c->sampling,
    };
    m.sampling.eos_ids = (struct u32_span){&c->eos_id, c->eos_id != 0};
    m.sampling.stop_ids = (struct u32_span){&c->stop_id, c->stop_id != 0};
    if (request_new(NULL, &m, MAX_MODEL_LEN, w->now_ns, &c->r, w->err) != STATUS_OK)
        return false;
    c->r->arrival_seq = ++w->arrivals;
    c->r->i_gateway = (uint32_t)(c - w->clients);
    if (request_table_add(w->table, c->r) != STATUS_OK)
        return fail(w, "the request table refuses a new request");
    return true;
}

static void forget(struct world *w, struct client *c)
{
    if (c->out_id)
        scheduler_let_go(w->scheduler, c->out_id);
    if (c->in_id && c->outside)
        scheduler_let_go(w->scheduler, c->in_id);
    c->out_id = c->in_id = 0;
    c->outside = false;
    request_table_remove(w->table, c->r);
    request_free(c->r);
    c->r = NULL;
    c->live = false;
}

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

bool world_to_scheduler(struct world *w, struct client *c)
{
    c->came_back = c->r->resubmitted;
    c->r->n_hit = scheduler_cached_tokens(w->scheduler, c->r);
    if (c->r->n_hit > c->r->n_ids)
        return fail(w, "more of a prompt is cached than it has");
    enum status st = scheduler_add(w->scheduler, c->r);
    if (st == STATUS_OK)
        return pop_ended(w); /* the tokens of the Submit may have ended the request */
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

bool world_arrive(struct world *w)
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
        if (!submit(w, c, 1) || !world_to_scheduler(w, c))
            return false;
    }
    return true;
}

void world_cancel(struct world *w, struct client *c)
{
    if (!c->outside)
        scheduler_remove(w->scheduler, c->r);
    request_enter(c->r, REQUEST_CANCELLED);
    w->report->n_cancelled++;
    forget(w, c);
}

bool world_disturb(struct world *w, struct client *c)
{
    if (percent(w, 30)) {
        c->r->resubmitted = true;
        return true;
    }
    uint32_t attempt = c->r->attempt;
    world_cancel(w, c);
    if (percent(w, 50))
        return true;
    w->report->n_cancelled--;
    c->live = true;
    w->report->n_resubmitted++;
    return submit(w, c, attempt + 1) && world_to_scheduler(w, c);
}

/* ---- tokens ---- */

/* Takes the request's rows of prompt_logprobs. Checks that each row arrives once, in order, and
 * before the first token. */
static bool take_rows(struct world *w, struct client *c, const struct scheduler_event *e)
{
    const struct logprob_row *rows;
    uint32_t n;
    while ((n = request_next_prompt_logprobs(c->r, &rows)) > 0) {
        for (uint32_t i = 0; i < n; i++) {
            float want = sim_rank_prompt_logprobs(c->ids, ++c->n_prompt_logprobs + 1,
                                                  (uint32_t)c->sampling.lora.len);
            if (rows[i].ids.ptr[0] != c->ids[c->n_prompt_logprobs] || rows[i].values.ptr[0] != want)
                return fail(w, "a row of a prompt is another one's");
        }
        request_prompt_logprobs_delivered(c->r, n);
        w->report->n_prompt_logprobs += n;
    }
    if (e->n_new > 0 && c->r->has_prompt_logprobs && c->n_prompt_logprobs + 1 != c->n_prompt)
        return fail(w, "a token before the prompt is scored");
    return true;
}

static bool take_event(struct world *w, const struct scheduler_event *e)
{
    struct client *c = client_of(w, e->request);
    if (!c || (e->n_new == 0 && !c->r->has_prompt_logprobs))
        return fail(w, "an event of a request that is not live, or without a token");
    if (!take_rows(w, c, e))
        return false;
    if (e->n_new == 0)
        return !e->ended || fail(w, "a request ends without a token");
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

bool world_deliver(struct world *w)
{
    struct msg_result m = w->in_flight[0].result;
    const struct scheduler_event *events;
    uint32_t n_events;
    w->in_flight[0] = w->in_flight[1];
    w->n_in_flight--;
    /* The times are arbitrary, so that the budget jumps between its limits. */
    if (w->c.step_target_ns)
        m.execute_ns = (uint64_t)between(w, 0, 100) * STEP_TARGET_NS / between(w, 1, 100);
    if (scheduler_on_result(w->scheduler, &m, w->now_ns, &events, &n_events, w->err) != STATUS_OK)
        return false;
    w->report->n_discarded += m.n_items - n_events;
    for (uint32_t i = 0; i < n_events; i++)
        if (!take_event(w, &events[i]))
            return false;
    return true;
}

/* ---- false answers ---- */

enum lie {
    LIE_EPOCH,
    LIE_STEP,
    LIE_DRAFTED,
    LIE_MORE,
    LIE_LESS,
    LIE_SLOT,
    LIE_LONG,
    LIE_ROWS,
    LIE_EMPTY,
    LIE_SCORES,
    N_LIES
};

static void spoil(struct world *w, const struct flight *f, struct msg_result *m,
                  struct result_item *items)
{
    static const uint32_t ids[SIM_RANK_MAX_DRAFT + 2];
    enum lie lie = (enum lie)below(w, N_LIES);
    struct result_item *x = m->n_items ? &items[below(w, m->n_items)] : NULL;
    if (x)
        memcpy(items, m->items, m->n_items * sizeof *items);
    m->items = items;
    if (lie == LIE_SCORES && x && x->n_prompt_logprobs > 0)
        lie = LIE_SLOT;
    /* this false answer may happen to be true */
    if (lie == LIE_EMPTY && (f->follows || (x && x->ids.n == 0)))
        lie = LIE_LONG;
    if (!x && lie >= LIE_LESS)
        lie = LIE_MORE;
    switch (lie) {
    case LIE_EPOCH:
        m->term_epoch++;
        break;
    case LIE_STEP:
        m->step += percent(w, 50) ? 1 : -1ull;
        break;
    case LIE_DRAFTED:
        m->n_drafted = w->c.max_num_batched_tokens + 1;
        break;
    case LIE_LESS:
        m->n_items--;
        break;
    case LIE_SLOT:
        x->slot++;
        break;
    case LIE_LONG:
        x->ids = (struct u32_span){ids, SIM_RANK_MAX_DRAFT + 2};
        break;
    case LIE_ROWS:
        x->n_logprobs = x->ids.n + 1;
        break;
    case LIE_SCORES:
        x->n_prompt_logprobs = 1;
        break;
    case LIE_EMPTY:
        x->ids.n = 0;
        break;
    default:
        items[m->n_items++] = (struct result_item){.ids = {ids, 1}};
        break;
    }
}

bool world_lie(struct world *w)
{
    static const struct flight none;
    const struct flight *f = w->n_in_flight ? &w->in_flight[0] : &none;
    struct msg_result m = f->result;
    struct result_item items[MAX_SEQS_LARGE + 1];
    struct scheduler_stats a, b;
    struct scheduler_load before, after;
    const struct scheduler_event *events;
    uint32_t n_events;
    struct error err;
    spoil(w, f, &m, items);
    scheduler_get_stats(w->scheduler, &a);
    scheduler_get_load(w->scheduler, &before);
    enum status st = scheduler_on_result(w->scheduler, &m, w->now_ns, &events, &n_events, &err);
    scheduler_get_stats(w->scheduler, &b);
    scheduler_get_load(w->scheduler, &after);
    w->report->n_lies++;
    if (st != STATUS_PROTOCOL || n_events)
        return fail(w, "an answer that nobody asked for is taken");
    if (a.running != b.running || a.waiting != b.waiting || a.in_flight != b.in_flight ||
        a.n_blocks_used != b.n_blocks_used || a.n_generated_tokens != b.n_generated_tokens ||
        a.n_drafted != b.n_drafted || a.n_accepted != b.n_accepted ||
        before.n_prompt_tokens != after.n_prompt_tokens ||
        before.n_free_tokens != after.n_free_tokens)
        return fail(w, "an answer that is refused has changed something");
    return true;
}

/* ---- steps ---- */

/* Returns the running request that is served first: no other running request precedes it. */
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

/* Returns true when another live request here has a higher priority. It may then take the place
 * of any running request. */
static bool has_better_class(const struct world *w, const struct request *r)
{
    for (uint32_t i = 0; i < w->n_clients; i++)
        if (w->clients[i].live && !w->clients[i].outside && w->clients[i].r->priority < r->priority)
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
        uint32_t n_prompt_logprobs = sequence_run_n_prompt_logprobs(run);
        if (!run->sample && n_prompt_logprobs == 0)
            continue;
        if (m->items[i_item].n_prompt_logprobs != n_prompt_logprobs)
            return fail(w, "the worker would have scored another number of rows");
        struct u32_span ids = m->items[i_item++].ids;
        if (!run->sample)
            continue;
        if ((run->n_tokens == 0) != (ids.n == 0) || ids.n > 1 + run->n_draft)
            return fail(w, "the worker would have sampled another number of tokens");
        for (uint32_t k = 0; k < ids.n; k++)
            if (!sequence_push(run->q, ids.ptr[k], MAX_MODEL_LEN))
                return fail(w, "a token is sampled beyond the model's length");
    }
    return i_item == m->n_items || fail(w, "the worker would have sampled for others");
}

static bool run_plan(struct world *w, const struct msg_plan *plan, uint32_t in_flight)
{
    struct flight *f = &w->in_flight[w->n_in_flight++];
    w->report->n_steps++;
    w->n_steps++;
    w->report->n_digests += plan->digest != 0;
    f->follows = false;
    for (uint32_t i = 0; i < plan->n_runs; i++)
        f->follows |= plan->runs[i].follows;
    return sim_rank_execute(w->rank, plan, plan->step - in_flight, &f->result, w->err) &&
           worker_agrees(w, plan, &f->result);
}

bool world_step(struct world *w, bool *made)
{
    struct scheduler_stats stats;
    struct request *oldest = oldest_running(w);
    const struct msg_plan *plan = scheduler_step(w->scheduler, w->now_ns);
    *made = plan != NULL;
    if (oldest && oldest->state == REQUEST_PREEMPTED && !has_better_class(w, oldest) &&
        !world_has_moves(w)) /* blocks of requests that are moving may be needed */
        return fail(w, "the oldest running sequence was preempted");
    scheduler_get_stats(w->scheduler, &stats);
    if (stats.in_flight > w->c.depth)
        return fail(w, "more steps in flight than the depth");
    if (plan && !run_plan(w, plan, stats.in_flight))
        return false;
    if (stats.in_flight != w->n_in_flight)
        return fail(w, "the scheduler counts its steps in flight wrongly");
    if (!pop_ended(w))
        return false;
    for (uint32_t i = 0; i < w->n_clients; i++)
        if (w->clients[i].live && !w->clients[i].outside && w->clients[i].r->deadline_ns &&
            w->clients[i].r->deadline_ns <= w->now_ns)
            return fail(w, "a request outlives its deadline");
    if (w->n_in_flight == 0 && request_table_count(w->table) > 0 && !world_has_moves(w))
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

bool world_lose_rank(struct world *w)
{
    struct handed h = {.w = w, .ok = true};
    uint32_t n = request_table_count(w->table);
    for (uint32_t i = 0; i < w->n_clients; i++) {
        struct client *c = &w->clients[i];
        n -= c->live && c->outside;
        c->out_id = c->in_id = 0; /* the end of the epoch has removed the moves */
    }
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

bool world_check(struct world *w)
{
    struct error err;
    if (w->large && ++w->n_unchecked < CHECK_EVERY_LARGE)
        return true;
    w->n_unchecked = 0;
    return scheduler_check(w->scheduler, &err) || fail(w, err.text);
}

bool world_is_empty(struct world *w)
{
    struct scheduler_stats stats;
    struct scheduler_load load;
    /* This step makes no plan, but frees the blocks that the last plan copied from. */
    bool made;
    if (!world_step(w, &made))
        return false;
    scheduler_get_stats(w->scheduler, &stats);
    scheduler_get_load(w->scheduler, &load);
    add_stats(w);
    if (made || stats.running || stats.waiting || stats.in_flight || stats.n_blocks_used ||
        load.n_prompt_tokens)
        return fail(w, "drained, but the scheduler still holds something");
    return true;
}

/* ---- life ---- */

bool world_open(struct world *w)
{
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
    return scheduler_new(&w->c, &w->scheduler, w->err) == STATUS_OK && world_lose_rank(w);
}

void world_close(struct world *w)
{
    scheduler_free(w->scheduler);
    request_table_free(w->table);
    sim_rank_free(w->rank);
    sequences_free(w->worker);
    mem_free(w->clients);
}
