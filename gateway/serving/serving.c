#include "gateway/serving/serving.h"

#include <stdio.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "gateway/request/state.h"
#include "gateway/serving/adapters.h"

#define SHUTTING_DOWN "The gateway is shutting down: try again later."

static uint64_t now(const struct serving *s)
{
    return s->o.now_ns(s->o.clock_ctx);
}

void serving_init(struct serving *s, const struct serving_options *o, const struct engine_ops *e,
                  const struct reply_ops *r, struct encode_pool *pool, struct metrics *registry)
{
    *s = (struct serving){.o = *o, .engine = *e, .reply = r, .pool = pool};
    s->link_changed_ns = s->group_lost_ns = now(s);
    strbuf_init(&s->out, SERVING_MAX_ANSWER);
    serving_metrics_init(&s->metrics, registry, o->served_names[0]);
}

void serving_fini(struct serving *s)
{
    s->pool = s->o.compile_pool = NULL; /* they have ended before */
    while (s->first)
        api_request_retire(s->first, OUTCOME_ABORT);
    serving_sweep(s);
    mem_free(s->scratch_ids);
    serving_metrics_fini(&s->metrics);
    strbuf_fini(&s->out);
}

void serving_respond_error(const struct reply_ops *ops, void *reply, const struct dialect *d,
                           const struct api_error *e)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    if (d)
        d->error(&b, e, false);
    else
        api_error_json(e, &b);
    int status = d && d->status ? d->status(e) : e->http_status;
    ops->respond(reply, status, strbuf_str(&b), e->retry_after_s);
    strbuf_fini(&b);
}

/* Names are for the log alone: anybody may ask a probe. */
#define OTHER_MODEL "the head refuses this gateway: its model's vocabulary is not the workers'"
#define OTHER_MODEL_SORRY                                                                          \
    "The head refuses this gateway, since its model's vocabulary is not the workers'. Its "        \
    "operator "                                                                                    \
    "finds both in its log."

uint32_t serving_max_model_len(const struct serving *s)
{
    uint32_t ours = s->o.model.max_model_len, heads = s->head_max_model_len;
    return heads && heads < ours ? heads : ours;
}

bool serving_is_of_another_model(const struct serving *s)
{
    return !s->link_up && s->refused == STATUS_UNSUPPORTED;
}

bool serving_healthy(const struct serving *s, const char **why)
{
    *why = s->draining                      ? "the gateway is shutting down"
           : serving_is_of_another_model(s) ? OTHER_MODEL
           : !s->link_up && s->refused != STATUS_OK
               ? "the head refuses this gateway: its log says why"
           : !s->link_up                               ? "no connection to the head"
           : s->n_groups_ready == 0 && s->start_s == 0 ? "no group of workers is ready"
                                                       : "";
    return **why == '\0';
}

/* ---- the choices to submit ---- */

void serving_add_pending(struct serving *s, struct api_choice *c)
{
    submit_queue_add(&s->pending, &c->pending, c->owner->tenant, now(s));
}

/* The first that finds no credit ends it, so that a large one's turn comes. To try it takes as long
 * as it is large: one that is large is tried again when credit came, not with each event. */
static void pump(struct serving *s)
{
    struct submit_entry *next;
    while (s->link_up && !s->awaits_credit && (next = submit_queue_next(&s->pending)) != NULL) {
        struct api_choice *c = (struct api_choice *)next;
        uint64_t bytes;
        enum status st = api_choice_submit(c, &bytes);
        if (st == STATUS_OK) {
            submit_queue_sent(&s->pending, next, bytes);
            stream_sent(&c->g.stream);
            if (!c->g.first_token_ns)
                c->submit_ns = now(s);
        } else if (st == STATUS_LIMIT) {
            struct api_error e = {0};
            api_error_set(&e, 413, NULL, "The prompt is too large for one message to the cluster.");
            api_request_fail(c->owner, &e);
        } else {
            s->awaits_credit = bytes >= SUBMIT_QUANTUM_BYTES;
            return;
        }
    }
}

void serving_pump(struct serving *s)
{
    s->awaits_credit = false;
    pump(s);
}

/* ---- events ---- */

void serving_on_request(struct serving *s, void *reply, const struct serving_request *q)
{
    struct api_error e = {0};
    uint64_t down_ns = now(s) - s->link_changed_ns;
    if (s->over)
        api_error_set(&e, 503, NULL, SHUTTING_DOWN);
    else if (!s->link_up && down_ns > s->o.head_timeout_ns)
        api_error_set(&e, 503, NULL, "The cluster's head cannot be reached: try again later.");
    else if (s->n_open_choices >= s->o.max_open_choices)
        api_error_set(&e, 503, NULL, "The server has too many open requests: try again later.");
    if (e.http_status)
        e.retry_after_s = 1;
    if (e.http_status || !limits_admit(q->key, now(s), &e)) {
        metric_add(s->metrics.rejected, 1);
        serving_respond_error(q->reply_ops ? q->reply_ops : s->reply, reply, q->dialect, &e);
        return;
    }
    api_request_start(s, reply, q);
    pump(s);
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

static struct api_request *find(const struct serving *s, struct request_id id)
{
    struct api_request *r = s->buckets[id.lo % SERVING_BUCKETS];
    while (r && (r->id.lo != id.lo || r->id.hi != id.hi))
        r = r->next_bucket;
    return r;
}

void serving_on_tokens(struct serving *s, const struct msg_tokens *m)
{
    for (uint32_t i = 0; i < m->n_items; i++) {
        const struct tokens_item *t = &m->items[i];
        struct api_request *r = find(s, t->id);
        if (r && t->i_choice < r->n_choices) {
            api_request_on_tokens(r, t->i_choice, t);
        } else if (t->finish == FINISH_NONE) {
            /* Nobody waits for it: our Cancel was lost with a link. Saying it again heals that. */
            struct msg_cancel c = {.id = t->id, .i_choice = t->i_choice, .attempt = t->attempt};
            (void)!s->engine.cancel(s->engine.ctx, &c);
        }
    }
    pump(s);
}

void serving_on_cluster(struct serving *s, const struct msg_cluster *m)
{
    if (m->n_groups_ready > 0)
        s->group_lost_ns = 0;
    else if (s->n_groups_ready > 0 || !s->cluster_known)
        s->group_lost_ns = now(s);
    if (!s->cluster_known || m->n_groups_ready != s->n_groups_ready)
        log_info("cluster_changed", "groups_ready=%u groups=%u workers=%u", m->n_groups_ready,
                 m->n_groups, m->n_workers);
    if (m->vocab_size && m->vocab_size < s->o.model.policy.vocab_size)
        log_warn("vocabulary_differs", "gateway=%u cluster=%u", s->o.model.policy.vocab_size,
                 m->vocab_size);
    serving_metrics_cluster(&s->metrics, m);
    s->max_loras = m->load.max_loras;
    s->cluster_known = true;
    s->n_groups_ready = m->n_groups_ready;
    s->start_s = m->start_s;
    s->scores_prompts = m->scores_prompts;
    s->one_class = m->one_class;
    s->head_max_model_len = m->max_model_len;
}

void serving_on_link(struct serving *s, bool up)
{
    if (s->link_up == up && !up)
        return;
    if (!up)
        metric_add(s->metrics.head_losses, 1);
    metric_set(s->metrics.head_link_up, up ? 1 : 0);
    s->link_up = up;
    s->link_changed_ns = now(s);
    s->grammar_of = (struct request_id){0}; /* a session knows nothing of the one before */
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

void serving_on_refused(struct serving *s, enum status status)
{
    s->refused = status;
}

/* ---- adapters, for who looks ---- */

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
    if (!a || s->max_loras == 0)
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
    serving_metrics_loras(&s->metrics, s->max_loras, strbuf_str(&running), strbuf_str(&waiting),
                          (double)s->o.wall_s(s->o.clock_ctx));
    strbuf_fini(&running);
    strbuf_fini(&waiting);
}

/* ---- time ---- */

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool give_no_group(const struct serving *s, struct api_error *e)
{
    if (s->start_s == 0)
        return api_error_set(e, 503, NULL, "No group of workers is ready: try again later.");
    if (s->start_s > e->retry_after_s)
        e->retry_after_s = s->start_s;
    return api_error_set(e, 503, NULL, "Workers are being started: try again later.");
}

/* How long a stream may stand still. A gateway that ends cannot outwait the cluster: all of it may
 * be ending, and its client can ask another one. */
static uint64_t pause_limit(const struct serving *s)
{
    const uint64_t most = SERVING_DRAIN_PAUSE_NS;
    return s->draining && s->o.pause_timeout_ns > most ? most : s->o.pause_timeout_ns;
}

static bool waited_too_long(const struct serving *s, const struct api_request *r, uint64_t t,
                            struct api_error *e)
{
    if (r->state == API_PREPARING)
        return false;
    if (api_request_is_late(r, t)) {
        e->retry_after_s = 0;
        return !api_error_set(e, 504, NULL, GENERATION_LATE);
    }
    bool begun = api_request_has_tokens(r);
    uint64_t since = begun ? r->last_progress_ns : r->arrival_ns;
    if (serving_is_of_another_model(s))
        return !api_error_set(e, 503, NULL, OTHER_MODEL_SORRY);
    if (!s->link_up) {
        uint64_t limit = begun ? pause_limit(s) : s->o.head_timeout_ns;
        if (t - later(since, s->link_changed_ns) > limit)
            return !api_error_set(e, 503, NULL,
                                  "The cluster's head cannot be reached: try again later.");
    } else if (s->n_groups_ready == 0 && s->group_lost_ns) {
        uint64_t limit = begun ? pause_limit(s) : s->o.queue_timeout_ns;
        if (t - later(since, later(s->group_lost_ns, s->link_changed_ns)) > limit)
            return !give_no_group(s, e);
    } else if (!begun) {
        for (uint32_t i = 0; i < r->n_choices; i++)
            if (r->choices[i].pending.of &&
                t - later(r->choices[i].pending.since_ns, s->link_changed_ns) >
                    s->o.submit_timeout_ns)
                return !api_error_set(e, 503, NULL, "The cluster is overloaded: try again later.");
    }
    return false;
}

/* DJL's chunked_read_timeout: since the last token, or since it came. A client that does not read
 * is not the model's fault: the HTTP server ends those. */
static bool is_silent(const struct serving *s, const struct api_request *r, uint64_t t)
{
    return s->o.chunk_timeout_ns && r->reply && r->n_ended < r->n_choices &&
           t - r->last_progress_ns > s->o.chunk_timeout_ns;
}

void serving_tick(struct serving *s)
{
    uint64_t t = now(s);
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
        } else if (r->state == API_STREAMING && r->dialect->keep_alive && s->o.keep_alive_ns &&
                   t - r->last_write_ns >= s->o.keep_alive_ns && r->reply_ops->room(r->reply) > 0) {
            r->last_write_ns = t;
            r->reply_ops->write(r->reply, str_from(r->dialect->keep_alive));
        } else if (r->state == API_RUNNING && r->n_ended == r->n_choices) {
            api_request_flush(r); /* the pool had no room for its answer */
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
        } else { /* the pool gives it back later */
            r->next = s->dead;
            s->dead = r;
        }
    }
}
