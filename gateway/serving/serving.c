/* Owns all open requests and handles the events that change them: a new request, tokens, a
 * client that reads or disconnects, the link, time.
 * `servers.c` and `engine.c` report the events. `engine_ops` sends submits and cancels, and
 * `reply_ops` sends answers.
 * `struct serving` owns every request in its list. An ended request stays until the end of the
 * turn, when `serving_sweep` frees it. A request that a pool still uses waits in `dead`. Only
 * the loop thread calls these functions, and time is an argument. */
#include "gateway/serving/serving.h"

#include <stdio.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "gateway/request/answer_writer.h"
#include "gateway/request/end.h"
#include "gateway/request/promise.h"
#include "gateway/request/table.h"
#include "gateway/serving/adapters.h"
#include "gateway/serving/refusal.h"
#include "gateway/serving/tokens.h"

void serving_init(struct serving *s, const struct serving_options *o, const struct engine_ops *e,
                  const struct reply_ops *r, struct encode_pool *pool, struct metrics *registry)
{
    *s = (struct serving){.o = *o, .engine = *e, .reply = r, .pool = pool};
    s->cluster.link_changed_ns = s->cluster.replica_lost_ns = serving_now(s);
    strbuf_init(&s->out, SERVING_MAX_ANSWER);
    serving_metrics_init(&s->metrics, registry, o->served_names[0]);
}

void serving_fini(struct serving *s)
{
    s->pool = s->o.compile_pool = NULL; /* the owner has already freed both pools */
    while (s->first)
        api_request_retire(s->first, OUTCOME_ABORT);
    serving_sweep(s);
    key_table_fini(&s->by_id);
    mem_free(s->scratch_ids);
    serving_metrics_fini(&s->metrics);
    strbuf_fini(&s->out);
}

/* ---- the model's files ---- */

void serving_await_model(struct serving *s)
{
    s->awaits_model = true;
}

void serving_has_model(struct serving *s, const struct serving_options *o)
{
    s->o = *o;
    s->awaits_model = false;
    s->cluster.link_changed_ns = serving_now(s); /* the time to reach the head begins now */
    for (struct api_request *r = s->first, *next; r; r = next) {
        next = r->next;
        if (r->awaits_model)
            api_request_has_model(r);
    }
    serving_pump(s);
}

void serving_fail(struct serving *s, const char *why)
{
    struct api_error e = {0};
    s->failure = why;
    if (!why)
        return;
    refusal_failed(s, &e);
    for (struct api_request *r = s->first, *next; r; r = next) {
        next = r->next;
        if (!api_request_has_tokens(r))
            api_request_fail(r, &e);
    }
}

/* ---- events ---- */

void serving_on_request(struct serving *s, void *reply, const struct serving_request *q)
{
    struct api_error e = {0};
    uint32_t slo_ttft_ms = 0;
    if (serving_refuses(s, &e) || !promise_read(q->slo_ttft, q->key, &slo_ttft_ms, &e) ||
        !limits_admit(q->key, serving_now(s), &e)) {
        metric_add(s->metrics.rejected, 1);
        reply_error(q->reply_ops ? q->reply_ops : s->reply, reply, q->dialect, &e);
        return;
    }
    if (q->admitted)
        q->admitted(q->admitted_ctx, q);
    api_request_start(s, reply, q, slo_ttft_ms);
    serving_pump_on(s);
}

void serving_on_drain(struct serving *s, struct api_request *r)
{
    if (r->state == API_STREAMING)
        api_request_flush(r);
}

void serving_on_abort(struct serving *s, struct api_request *r)
{
    r->reply = NULL;
    if (r->state == API_DONE)
        return;
    log_debug("client_gone", "id=%s", r->id_text);
    api_request_retire(r, OUTCOME_ABORT);
}

void serving_on_tokens(struct serving *s, const struct msg_tokens *m)
{
    for (uint32_t i = 0; i < m->n_items; i++) {
        const struct tokens_item *t = &m->items[i];
        struct api_request *r = request_table_find(s, t->id);
        if (r && t->i_choice < r->n_choices) {
            api_request_on_tokens(r, t->i_choice, t);
        } else if (t->finish == FINISH_NONE) {
            /* No request waits for these tokens, because an earlier Cancel was lost with a link.
             * The Cancel is sent again. */
            struct msg_cancel c = {.id = t->id, .i_choice = t->i_choice, .attempt = t->attempt};
            (void)!s->engine.cancel(s->engine.ctx, &c);
        }
    }
    serving_pump_on(s);
}

void serving_on_link(struct serving *s, bool up)
{
    if (s->cluster.link_up == up && !up)
        return;
    if (!up)
        metric_add(s->metrics.head_losses, 1);
    metric_set(s->metrics.head_link_up, up ? 1 : 0);
    s->cluster.link_up = up;
    s->cluster.link_changed_ns = serving_now(s);
    /* the head has no grammar of the earlier session */
    s->grammar_of = (struct request_id){0};
    if (!up)
        return;
    for (struct api_request *r = s->first; r; r = r->next)
        for (uint32_t i = 0; i < r->n_choices; i++) {
            struct api_choice *c = &r->choices[i];
            bool was_open = c->g.stream.phase == STREAM_OPEN;
            if (stream_link_up(&c->g.stream))
                serving_add_pending(s, c);
            if (was_open)
                metric_add(s->metrics.resubmissions, 1);
        }
    serving_pump(s);
}

/* ---- adapters, for metrics ---- */

static void append_name(struct strbuf *names, const char *name)
{
    strbuf_append_c(names, names->len ? "," : "");
    strbuf_append_c(names, name);
}

void serving_tell_loras(struct serving *s, const struct api_key *key)
{
    const struct gateway_adapters *a = s->o.adapters;
    bool runs[PROTO_MAX_ADAPTERS] = {false}, waits[PROTO_MAX_ADAPTERS] = {false};
    struct strbuf running, waiting;
    if (!a || s->cluster.max_loras == 0)
        return;
    for (const struct api_request *r = s->first; r; r = r->next)
        for (uint32_t i = 0; r->lora.len > 0 && i < a->n_names; i++)
            if (str_eq_c(r->lora, a->names[i]))
                *(api_request_has_tokens(r) ? &runs[i] : &waits[i]) = true;
    strbuf_init(&running, 0);
    strbuf_init(&waiting, 0);
    for (uint32_t i = 0; i < a->n_names; i++) {
        if (!limits_allow_model(key, str_from(a->names[i])))
            continue;
        if (runs[i])
            append_name(&running, a->names[i]);
        if (waits[i])
            append_name(&waiting, a->names[i]);
    }
    serving_metrics_loras(&s->metrics, s->cluster.max_loras, strbuf_str(&running),
                          strbuf_str(&waiting), (double)s->o.wall_s(s->o.clock_ctx));
    strbuf_fini(&running);
    strbuf_fini(&waiting);
}

/* ---- time ---- */

static bool is_late(const struct api_request *r, uint64_t now_ns)
{
    return r->deadline_ns && now_ns >= r->deadline_ns;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool give_no_replica(const struct serving *s, struct api_error *e)
{
    if (s->cluster.start_s == 0)
        return api_error_set(e, 503, NULL, "No replica is ready: try again later.");
    if (s->cluster.start_s > e->retry_after_s)
        e->retry_after_s = s->cluster.start_s;
    return api_error_set(e, 503, NULL, "Workers are being started: try again later.");
}

/* Returns the longest time that a stream may receive no token. A gateway that stops waits less:
 * the whole cluster may be stopping, and the client can retry elsewhere. */
static uint64_t pause_limit(const struct serving *s)
{
    const uint64_t most = SERVING_DRAIN_PAUSE_NS;
    return s->draining && s->o.pause_timeout_ns > most ? most : s->o.pause_timeout_ns;
}

static bool waited_too_long(const struct serving *s, struct api_request *r, uint64_t t,
                            struct api_error *e)
{
    if (r->state == API_PREPARING)
        return false;
    if (is_late(r, t)) {
        e->retry_after_s = 0;
        return !api_error_set(e, 504, NULL, GENERATION_LATE);
    }
    bool begun = api_request_has_tokens(r);
    if (!begun && promise_is_hopeless(r, t)) {
        promise_explain_first(r, e);
        return true;
    }
    uint64_t since = begun ? r->last_progress_ns : r->arrival_ns;
    if (serving_is_of_another_model(s))
        return !api_error_set(e, 503, NULL, OTHER_MODEL_SORRY);
    if (!s->cluster.link_up) {
        uint64_t limit = begun ? pause_limit(s) : s->o.head_timeout_ns;
        if (t - later(since, s->cluster.link_changed_ns) > limit)
            return !api_error_set(e, 503, NULL,
                                  "The cluster's head cannot be reached: try again later.");
    } else if (s->cluster.n_replicas_ready == 0 && s->cluster.replica_lost_ns) {
        uint64_t limit = begun ? pause_limit(s) : s->o.queue_timeout_ns;
        if (t - later(since, later(s->cluster.replica_lost_ns, s->cluster.link_changed_ns)) > limit)
            return !give_no_replica(s, e);
    } else if (!begun) {
        for (uint32_t i = 0; i < r->n_choices; i++)
            if (r->choices[i].pending.of &&
                t - later(r->choices[i].pending.since_ns, s->cluster.link_changed_ns) >
                    s->o.submit_timeout_ns)
                return !api_error_set(e, 503, NULL, "The cluster is overloaded: try again later.");
    }
    return false;
}

/* Returns true when an open request has had no token for longer than DJL's chunked_read_timeout,
 * counted from the last token or the arrival. The model is not at fault for a slow client. The
 * HTTP server ends the connections of slow clients. */
static bool is_silent(const struct serving *s, const struct api_request *r, uint64_t t)
{
    return s->o.chunk_timeout_ns && r->reply && r->n_ended < r->n_choices &&
           t - r->last_progress_ns > s->o.chunk_timeout_ns;
}

/* Returns true when a stream has waited silently for workers that start, so that it must begin
 * before its first token. A stream normally begins with that token, because an error before it
 * then has an HTTP status. */
static bool waits_for_workers(const struct serving *s, const struct api_request *r, uint64_t t)
{
    return r->state == API_RUNNING && r->reply && r->prepared.params.stream &&
           r->dialect->keep_alive && s->o.keep_alive_ns && s->cluster.start_s > 0 &&
           s->cluster.n_replicas_ready == 0 && t - r->arrival_ns >= s->o.keep_alive_ns;
}

void serving_tick(struct serving *s)
{
    uint64_t t = serving_now(s);
    serving_pump(s);
    for (struct api_request *r = s->first, *next; r; r = next) {
        struct api_error e = {.retry_after_s = 5};
        next = r->next;
        if (waited_too_long(s, r, t, &e)) {
            api_request_fail(r, &e);
        } else if (is_silent(s, r, t)) {
            log_warn("request_dropped", "id=%s silent_s=%.0f", r->id_text,
                     (double)s->o.chunk_timeout_ns / 1e9);
            r->reply_ops->drop(r->reply, r->state == API_STREAMING);
            r->reply = NULL;
            api_request_retire(r, OUTCOME_ERROR);
        } else if (waits_for_workers(s, r, t)) {
            api_request_begin_early(r);
            if (r->reply) /* the client had not disconnected */
                r->reply_ops->write(r->reply, str_from(r->dialect->keep_alive));
        } else if (r->state == API_STREAMING && r->dialect->keep_alive && s->o.keep_alive_ns &&
                   t - r->last_write_ns >= s->o.keep_alive_ns && r->reply_ops->room(r->reply) > 0) {
            r->last_write_ns = t;
            r->reply_ops->write(r->reply, str_from(r->dialect->keep_alive));
        } else if (r->state == API_RUNNING && r->n_ended == r->n_choices) {
            /* the pool's queue was full when this answer was submitted earlier */
            api_request_flush(r);
        }
    }
    metric_set(s->metrics.open_requests, s->n_requests);
}

void serving_end_all(struct serving *s)
{
    struct api_error e = {.retry_after_s = 1};
    s->over = true;
    api_error_set(&e, 503, NULL, SHUTTING_DOWN);
    for (struct api_request *r = s->first, *next; r; r = next) {
        next = r->next;
        api_request_fail(r, &e);
    }
}

void serving_sweep(struct serving *s)
{
    struct api_request *r = s->dead, *next;
    s->dead = NULL;
    for (; r; r = next) {
        next = r->next;
        if (!r->on_pool) {
            api_request_free(r);
        } else { /* the pool returns the request later */
            r->next = s->dead;
            s->dead = r;
        }
    }
}
