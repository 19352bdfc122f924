/* Passes the logged inputs to schedulers and compares their outputs.
 *
 * replay_main.c calls `replay_run`, which reads events (read.h) and makes one scheduler per
 * replica in the log. Each call of the head is repeated with its logged arguments and time.
 * Plans are compared byte by byte in the log's format. Refusals, ends and event counts of
 * results are compared too.
 *
 * Invariants: one thread runs the replay, without a clock. The first difference ends the replay.
 * Requests belong to the replay and are found by arrival number. */
#include "head/record/replay.h"

#include <inttypes.h>

#include "common/base/mem.h"
#include "head/record/replay_print.h"

enum { N_BUCKETS = 4096, DETAIL_BYTES = 384 };

struct replica_replay {
    struct scheduler *scheduler; /* scheduler of the replica; NULL = the replica is down */
    uint64_t id, term_epoch;
    struct request *buckets[N_BUCKETS]; /* requests by arrival number, chained by `next` */
    struct request *last_added;
    enum status last_add, last_result;
    const struct msg_plan *plan; /* plan of the last step, until its PLAN event is read */
    const struct scheduler_event *events;
    uint32_t n_events;
};

struct replay {
    const struct replay_options *o;
    FILE *out;
    struct replay_totals *totals;
    struct replica_replay *replicas[STEP_LOG_MAX_REPLICAS];
    struct replica_replay *stepped; /* replica whose STEP was the last event */
    struct step_log_out bytes;
    struct arena arena;
    uint64_t step; /* number of the last plan, for messages */
};

/* ---- requests by arrival ---- */

static struct request **find(struct replica_replay *g, uint64_t arrival_seq)
{
    struct request **at = &g->buckets[arrival_seq % N_BUCKETS];
    while (*at && (*at)->arrival_seq != arrival_seq)
        at = &(*at)->next;
    return at;
}

static void forget(struct replica_replay *g, struct request *r)
{
    *find(g, r->arrival_seq) = r->next;
    if (g->last_added == r)
        g->last_added = NULL;
    request_free(r);
}

static enum status remember(struct replica_replay *g, const struct request *logged,
                            struct request **out, struct error *err)
{
    struct request **at = find(g, logged->arrival_seq);
    if (*at)
        return error_set(err, STATUS_INVALID,
                         "the step log is damaged: it adds request %" PRIu64
                         " twice. Record a new log",
                         logged->arrival_seq);
    struct request *r = request_alloc(NULL);
    *r = *logged;
    arena_init(&r->arena, 0);
    const struct sampling_params *s = &logged->sampling;
    size_t n_stops = (size_t)s->eos_ids.n + s->stop_ids.n;
    uint32_t *ids = arena_try_array(&r->arena, (size_t)r->ids_cap + n_stops, sizeof *ids);
    char *lora = arena_try_array(&r->arena, s->lora.len + 1, 1);
    if (!ids || !lora) {
        request_free(r);
        return error_set(err, STATUS_NO_MEMORY,
                         "the replay has no memory for a request of %u tokens", logged->ids_cap);
    }
    memcpy(ids, logged->ids, r->n_ids * sizeof *ids);
    uint32_t *stops = ids + r->ids_cap;
    for (uint32_t i = 0; i < s->eos_ids.n; i++)
        *stops++ = s->eos_ids.ptr[i];
    for (uint32_t i = 0; i < s->stop_ids.n; i++)
        *stops++ = s->stop_ids.ptr[i];
    memcpy(lora, s->lora.ptr, s->lora.len);
    r->ids = ids;
    r->sampling.eos_ids.ptr = ids + r->ids_cap;
    r->sampling.stop_ids.ptr = ids + r->ids_cap + s->eos_ids.n;
    r->sampling.lora.ptr = lora;
    request_keep_stops(r);
    r->next = NULL;
    *at = *out = r;
    return STATUS_OK;
}

/* ---- replicas ---- */

static void let_go(void *ctx, struct request *r)
{
}

static void take_down(struct replica_replay *g)
{
    if (!g->scheduler)
        return;
    scheduler_reset(g->scheduler, g->term_epoch, let_go, NULL);
    scheduler_free(g->scheduler);
    for (uint32_t i = 0; i < N_BUCKETS; i++)
        while (g->buckets[i])
            forget(g, g->buckets[i]);
    *g = (struct replica_replay){0};
}

static enum status on_replica(struct replay *p, struct replica_replay *g,
                              const struct step_log_event *e, struct error *err)
{
    if (g->scheduler)
        return error_set(err, STATUS_INVALID,
                         "the step log is damaged: it makes replica %" PRIu64
                         " ready twice. Record a new log",
                         e->id);
    TRY(scheduler_new(&e->config, &g->scheduler, err));
    g->id = e->id;
    g->term_epoch = e->term_epoch;
    scheduler_reset(g->scheduler, e->term_epoch, let_go, NULL);
    p->totals->n_replicas++;
    return STATUS_OK;
}

/* ---- comparison ---- */

static enum status differs(const struct replay *p, const struct replica_replay *g,
                           struct error *err, const char *fmt, ...) PRINTF_LIKE(4, 5);
static enum status differs(const struct replay *p, const struct replica_replay *g,
                           struct error *err, const char *fmt, ...)
{
    char what[DETAIL_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return error_set(err, STATUS_INTERNAL, "replica %" PRIu64 ", at or after step %" PRIu64 ": %s",
                     g->id, p->step, what);
}

/* Ends the replay of a step after its plan was compared, or when the head made no plan. */
static enum status settle(struct replay *p, struct error *err)
{
    struct replica_replay *g = p->stepped;
    p->stepped = NULL;
    if (!g || !g->plan)
        return STATUS_OK;
    replay_print_plan(p->out, g->id, g->term_epoch, g->plan);
    return differs(p, g, err,
                   "the replay made a plan where the head made none; the plan is printed above");
}

static enum status check(const struct replay *p, const struct replica_replay *g, struct error *err)
{
    struct error what;
    if (!p->o->check || scheduler_check(g->scheduler, &what))
        return STATUS_OK;
    return differs(p, g, err, "an invariant of the scheduler does not hold: %s", what.text);
}

static bool is_printed(const struct replay_options *o, const struct replica_replay *g,
                       uint64_t step)
{
    return o->print && step >= (uint64_t)o->from && (o->to == 0 || step <= (uint64_t)o->to) &&
           (o->replica < 0 || g->id == (uint64_t)o->replica);
}

static enum status on_plan(struct replay *p, struct replica_replay *g,
                           const struct step_log_event *e, struct error *err)
{
    struct msg_plan logged;
    if (p->stepped != g)
        return error_set(err, STATUS_INVALID,
                         "the step log is damaged: it has a plan without a step. Record a new log");
    p->stepped = NULL;
    const struct msg_plan *plan = g->plan;
    p->bytes.n = 0;
    if (plan)
        step_log_put_plan(&p->bytes, plan);
    if (plan && p->bytes.n == e->plan.len &&
        memcmp(p->bytes.bytes, e->plan.ptr, e->plan.len) == 0) {
        p->step = plan->step;
        p->totals->n_steps++;
        p->totals->n_runs += plan->n_runs;
        for (uint32_t i = 0; i < plan->n_runs; i++)
            p->totals->n_tokens += plan->runs[i].n_tokens;
        if (is_printed(p->o, g, plan->step))
            replay_print_plan(p->out, g->id, g->term_epoch, plan);
        return check(p, g, err);
    }
    arena_reset(&p->arena);
    TRY(step_log_get_plan(e->plan, &p->arena, &logged, err));
    fprintf(p->out, "the head made this plan:\n");
    replay_print_plan(p->out, g->id, g->term_epoch, &logged);
    fprintf(p->out, "the replay makes %s\n", plan ? "this one:" : "none");
    if (plan)
        replay_print_plan(p->out, g->id, g->term_epoch, plan);
    p->step = logged.step;
    return differs(p, g, err, "the plan differs from the head's; both are printed above");
}

static enum status on_step(struct replay *p, struct replica_replay *g,
                           const struct step_log_event *e, struct error *err)
{
    g->plan = scheduler_step(g->scheduler, e->now_ns);
    p->stepped = g;
    return STATUS_OK;
}

static enum status on_idle(struct replay *p, struct replica_replay *g,
                           const struct step_log_event *e, struct error *err)
{
    for (uint64_t i = 0; i < e->n_idle; i++) {
        g->plan = scheduler_step(g->scheduler, e->now_ns);
        p->stepped = g;
        p->totals->n_idle++;
        TRY(settle(p, err));
    }
    return check(p, g, err);
}

static enum status on_add(struct replay *p, struct replica_replay *g,
                          const struct step_log_event *e, struct error *err)
{
    TRY(remember(g, &e->request, &g->last_added, err));
    g->last_add = scheduler_add(g->scheduler, g->last_added);
    p->totals->n_requests++;
    if (g->last_add == STATUS_OK)
        return check(p, g, err);
    return STATUS_OK; /* the event REFUSED follows */
}

static enum status on_refused(struct replay *p, struct replica_replay *g,
                              const struct step_log_event *e, struct error *err)
{
    if (!g->last_added)
        return error_set(
            err, STATUS_INVALID,
            "the step log is damaged: it refuses a request that it did not add. Record a new log");
    if (g->last_add != e->status)
        return differs(
            p, g, err,
            "request %" PRIu64 ": the head's scheduler returned %s, but the replay's returned %s",
            g->last_added->arrival_seq, status_name(e->status), status_name(g->last_add));
    p->totals->n_requests--;
    forget(g, g->last_added);
    return STATUS_OK;
}

static enum status on_remove(struct replay *p, struct replica_replay *g,
                             const struct step_log_event *e, struct error *err)
{
    struct request *r = *find(g, e->arrival_seq);
    if (!r || !r->sched)
        return error_set(err, STATUS_INVALID,
                         "the step log is damaged: it removes request %" PRIu64
                         ", which the replay's scheduler does not have. Record a new log",
                         e->arrival_seq);
    scheduler_remove(g->scheduler, r);
    forget(g, r);
    return check(p, g, err);
}

static enum status on_result(struct replay *p, struct replica_replay *g,
                             const struct step_log_event *e, struct error *err)
{
    struct error what;
    g->n_events = 0;
    if (is_printed(p->o, g, e->result.step))
        replay_print_result(p->out, e->now_ns, &e->result, g->scheduler);
    g->last_result =
        scheduler_on_result(g->scheduler, &e->result, e->now_ns, &g->events, &g->n_events, &what);
    p->totals->n_results++;
    return STATUS_OK; /* the event DONE follows, unless the head died in the call */
}

static enum status on_done(struct replay *p, struct replica_replay *g,
                           const struct step_log_event *e, struct error *err)
{
    uint32_t n_ended = 0, n_events = g->n_events;
    g->n_events = 0;
    for (uint32_t i = 0; i < n_events; i++) {
        if (!g->events[i].ended)
            continue;
        n_ended++;
        forget(g, g->events[i].request);
    }
    if (g->last_result != e->status || n_events != e->n_events || n_ended != e->n_ended)
        return differs(p, g, err,
                       "a step's result differs: the head's scheduler returned %s, with tokens for "
                       "%u requests and %u ends; the replay's returned %s, with %u and %u",
                       status_name(e->status), e->n_events, e->n_ended, status_name(g->last_result),
                       n_events, n_ended);
    return check(p, g, err);
}

static enum status on_ended(struct replay *p, struct replica_replay *g,
                            const struct step_log_event *e, struct error *err)
{
    struct request *r = scheduler_pop_ended(g->scheduler);
    if (!r || r->arrival_seq != e->arrival_seq || r->finish != e->finish)
        return differs(p, g, err,
                       "request %" PRIu64 " ended (%s) in the head, but in the replay %s",
                       e->arrival_seq, finish_reason_name(e->finish),
                       r ? "another request ended" : "no request did");
    forget(g, r);
    return check(p, g, err);
}

typedef enum status on_event_fn(struct replay *p, struct replica_replay *g,
                                const struct step_log_event *e, struct error *err);

static enum status on_down(struct replay *p, struct replica_replay *g,
                           const struct step_log_event *e, struct error *err)
{
    take_down(g);
    return STATUS_OK;
}

/* Repeats a hold. The log does not say whether the hold was possible. That follows from the
 * earlier events. */
static enum status on_hold(struct replay *p, struct replica_replay *g,
                           const struct step_log_event *e, struct error *err)
{
    const struct request *r = *find(g, e->arrival_seq);
    if (!r || !r->sched)
        return error_set(err, STATUS_INVALID,
                         "the step log is damaged: it holds request %" PRIu64
                         ", which the replay's scheduler does not have. Record a new log",
                         e->arrival_seq);
    if (scheduler_hold(g->scheduler, r, e->n_tokens, e->id) != STATUS_OK)
        return STATUS_OK;
    return check(p, g, err);
}

static enum status on_import(struct replay *p, struct replica_replay *g,
                             const struct step_log_event *e, struct error *err)
{
    if (scheduler_import(g->scheduler, &e->request, e->n_tokens, e->id) != STATUS_OK)
        return STATUS_OK;
    return check(p, g, err);
}

static enum status on_imported(struct replay *p, struct replica_replay *g,
                               const struct step_log_event *e, struct error *err)
{
    scheduler_imported(g->scheduler, e->id);
    return check(p, g, err);
}

static enum status on_let_go(struct replay *p, struct replica_replay *g,
                             const struct step_log_event *e, struct error *err)
{
    scheduler_let_go(g->scheduler, e->id);
    return check(p, g, err);
}

static enum status on_leave(struct replay *p, struct replica_replay *g,
                            const struct step_log_event *e, struct error *err)
{
    struct request *r = *find(g, e->arrival_seq);
    if (!r || !r->sched || r->state == REQUEST_FINISHED)
        return error_set(err, STATUS_INVALID,
                         "the step log is damaged: it moves request %" PRIu64
                         " away, but the replay's scheduler does not have it. Record a new log",
                         e->arrival_seq);
    (void)scheduler_leave(g->scheduler, r);
    return check(p, g, err);
}

static on_event_fn *const on_event[STEP_LOG_KIND_COUNT] = {
    [STEP_LOG_REPLICA] = on_replica, [STEP_LOG_ADD] = on_add,
    [STEP_LOG_REFUSED] = on_refused, [STEP_LOG_REMOVE] = on_remove,
    [STEP_LOG_IDLE] = on_idle,       [STEP_LOG_STEP] = on_step,
    [STEP_LOG_PLAN] = on_plan,       [STEP_LOG_RESULT] = on_result,
    [STEP_LOG_DONE] = on_done,       [STEP_LOG_ENDED] = on_ended,
    [STEP_LOG_DOWN] = on_down,       [STEP_LOG_HOLD] = on_hold,
    [STEP_LOG_IMPORT] = on_import,   [STEP_LOG_IMPORTED] = on_imported,
    [STEP_LOG_LET_GO] = on_let_go,   [STEP_LOG_LEAVE] = on_leave,
};

static enum status take(struct replay *p, const struct step_log_event *e, struct error *err)
{
    if (e->kind == STEP_LOG_START)
        return STATUS_OK;
    if (e->kind != STEP_LOG_PLAN)
        TRY(settle(p, err));
    struct replica_replay *g = p->replicas[e->i_replica];
    if (!g)
        g = p->replicas[e->i_replica] = mem_zalloc(sizeof *g);
    if (!g->scheduler && e->kind != STEP_LOG_REPLICA)
        return error_set(err, STATUS_INVALID,
                         "the step log is damaged: it has an event for a replica that is down. "
                         "Record a new log");
    return on_event[e->kind](p, g, e, err);
}

static void free_replicas(struct replay *p)
{
    for (uint32_t i = 0; i < STEP_LOG_MAX_REPLICAS; i++) {
        if (p->replicas[i])
            take_down(p->replicas[i]);
        mem_free(p->replicas[i]);
    }
}

enum status replay_run(struct step_log_reader *log, const struct replay_options *o, FILE *out,
                       struct replay_totals *totals, struct error *err)
{
    struct step_log_event *e = mem_zalloc(sizeof *e);
    struct replay *p = mem_zalloc(sizeof *p);
    *totals = (struct replay_totals){0};
    p->o = o;
    p->out = out;
    p->totals = totals;
    arena_init(&p->arena, 0);
    enum status s;
    while ((s = step_log_next(log, e, err)) == STATUS_OK) {
        s = take(p, e, err);
        if (s != STATUS_OK)
            break;
    }
    /* at the end of the log, it is unknown whether the last step made a plan */
    if (s == STATUS_CLOSED) {
        totals->died_in_step = p->stepped != NULL;
        s = STATUS_OK;
    }
    free_replicas(p);
    step_log_out_fini(&p->bytes);
    arena_fini(&p->arena);
    mem_free(p);
    mem_free(e);
    return s;
}
