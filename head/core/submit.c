/* Converts a Submit to a held request, or to a refusal.
 *
 * gateways.c passes each Submit to `submit_on_msg`. It restores the grammar, finds an open
 * request that the Submit continues, or makes a new request and adds it to the queue of held
 * requests. Refusals are added to the gateway's list, which deliver.c sends.
 *
 * Invariants: everything runs on the loop thread. A request owns its memory except the grammar,
 * which is shared. All choices of a request, and often all requests of an application, have the
 * same grammar of up to PROTO_MAX_GRAMMAR_BYTES. Limits (memory, queue, tenant) are checked
 * before a request is accepted. */
#include "head/core/submit.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/core/scale.h"
#include "head/core/sleep.h"
#include "head/request/logprobs.h"
#include "head/request/prompt_logprobs.h"
#include "head/request/request.h"
#include "head/routing/adapter_bind.h"
#include "head/routing/promises.h"
#include "head/state/outbox.h"
#include "head/state/requests.h"
#include "head/state/served_model.h"

/* UNKNOWN_MODEL_LEN is the longest request, in tokens, before any worker has reported its
 * model's limit. */
#define UNKNOWN_MODEL_LEN (1u << 20)

static enum status share_grammar(struct head_core *h, const struct msg_submit *m, struct request *r,
                                 struct error *err)
{
    if (request_pools(r) || m->sampling.grammar.len == 0)
        return STATUS_OK;
    TRY(shared_text_take(&h->grammars.texts, r->tenant, m->sampling.grammar, r->resubmitted,
                         &r->grammar_text, err));
    r->sampling.grammar = shared_text_str(r->grammar_text);
    return STATUS_OK;
}

/* Makes a request from a Submit that is otherwise valid. Its grammar is shared with all requests
 * that have the same text. Returns STATUS_LIMIT when the limit of stored grammars is reached,
 * which only a new request can cause. */
static enum status new_request(struct head_core *h, const struct msg_submit *m,
                               struct request **out, struct error *err)
{
    struct msg_submit own = *m;
    uint32_t max_model_len = served_model_now(h).max_model_len;
    own.sampling.grammar = STR("");
    TRY(request_new(&h->request_slab, &own, max_model_len ? max_model_len : UNKNOWN_MODEL_LEN,
                    h->now_ns, out, err));
    enum status s = share_grammar(h, m, *out, err);
    if (s != STATUS_OK) {
        request_free(*out);
        *out = NULL;
    }
    return s;
}

void submit_forget_grammar(struct kept_grammar *k)
{
    shared_text_release(k->text);
    *k = (struct kept_grammar){0};
}

/* Restores a grammar that the gateway sent before. Keeps m's grammar for later, or writes a copy
 * of `m` with the kept grammar to *out. Call it for each Submit of the session, in order.
 * Returns STATUS_LIMIT when the Submit has same_grammar but there was no memory to keep that
 * grammar. */
static enum status recall_grammar(struct head_core *h, struct kept_grammar *k,
                                  const struct msg_submit *m, struct msg_submit *out,
                                  struct error *err)
{
    *out = *m;
    if (!m->same_grammar && m->sampling.grammar.len == 0)
        return STATUS_OK;
    if (!m->same_grammar) {
        struct error ignored; /* the request itself then fails, because the limit is reached */
        submit_forget_grammar(k);
        k->kind = m->sampling.grammar_kind;
        (void)!shared_text_take(&h->grammars.texts, m->tenant, m->sampling.grammar,
                                m->attempt > 1 || m->ids.n > m->n_prompt, &k->text, &ignored);
        return STATUS_OK;
    }
    if (!k->text)
        return error_set(err, STATUS_LIMIT,
                         "the cluster is overloaded: no memory is left for this request's grammar. "
                         "Try again later");
    out->sampling.grammar_kind = k->kind;
    out->sampling.grammar = shared_text_str(k->text);
    return STATUS_OK;
}

static void refuse(struct head_core *h, struct gateway_peer *g, const struct msg_submit *m,
                   enum status status, const char *text)
{
    if (g->n_refusals == g->refusals_cap) {
        if (g->refusals_cap == REFUSALS_MAX) {
            /* the gateway sends without reading; a new session resets it */
            peers_close_session(&h->peers, g->peer);
            return;
        }
        g->refusals_cap = g->refusals_cap ? 2 * g->refusals_cap : 16;
        g->refusals = mem_realloc(g->refusals, g->refusals_cap * sizeof *g->refusals);
    }
    struct refusal *x = &g->refusals[g->n_refusals++];
    *x = (struct refusal){.id = m->id, .i_choice = m->i_choice, .attempt = m->attempt};
    x->status = status;
    uint32_t start_s = scale_seconds_to_start(h);
    x->retry_after_s = status != STATUS_LIMIT ? 0 : start_s > 0 ? start_s : 1;
    snprintf(x->text, sizeof x->text, "%s", text);
    h->n_failed++;
}

/* Returns true when `m` is the same request and has no token that the head lacks. The request
 * then continues and nothing is computed again. Log-probabilities that were sent are freed, so
 * the gateway must already have all of them. */
static bool continues(const struct request *r, const struct msg_submit *m)
{
    if (r->has_prompt_logprobs && m->n_known_logprobs != r->prompt_logprobs->n_delivered)
        return false;
    return m->n_prompt == r->n_prompt && m->ids.n >= m->n_prompt && m->ids.n <= r->n_ids &&
           request_has_rows_from(r, m->ids.n - m->n_prompt) &&
           memcmp(m->ids.ptr, r->ids, m->ids.n * sizeof *r->ids) == 0;
}

/* Describes a request whose place a new one takes. The new one counts only what is new. */
struct replaced {
    struct usage_request usage;
    uint32_t n_generated;
    bool exists;
};

static struct replaced replaced_by(const struct head_core *h, struct request *r,
                                   const struct msg_submit *m)
{
    usage_settle(&h->usage, &r->usage); /* the request may still hold blocks */
    bool same = r->tenant == m->tenant && r->n_prompt == m->n_prompt;
    return (struct replaced){r->usage, request_n_generated(r), same};
}

static void count_request(struct head_core *h, struct request *r, const struct msg_submit *m,
                          const struct replaced *before)
{
    r->usage.asks = m->asks_usage;
    if (before->exists)
        usage_open_again(&h->usage, &r->usage, r->tenant, m->tenant_name, &before->usage,
                         before->n_generated, request_n_generated(r));
    else
        usage_open(&h->usage, &r->usage, r->tenant, m->tenant_name);
}

/* Handles a Submit for an open request: the request continues, or the Submit is refused or
 * ignored. Returns false when the Submit must become a new request. Then *out is the request
 * that was open. */
static bool submit_to_open(struct head_core *h, struct gateway_peer *g, const struct msg_submit *m,
                           struct replaced *out)
{
    struct request *r = request_table_find(h->requests, m->id, m->i_choice);
    if (!r)
        return false;
    if (r->i_gateway != g->index) {
        refuse(h, g, m, STATUS_EXISTS, "another gateway has a request with this id");
        return true;
    }
    bool same_session = r->gateway_session == g->session;
    if (m->attempt < r->attempt || (m->attempt == r->attempt && same_session))
        return true;
    if (!continues(r, m)) {
        *out = replaced_by(h, r, m);
        requests_drop(h, r);
        return false;
    }
    r->attempt = m->attempt;
    /* while a scheduler has the request, its place in the queue must not change */
    if (r->i_replica == NO_REPLICA)
        r->resubmitted = true;
    r->gateway_session = g->session;
    r->n_delivered = m->ids.n - m->n_prompt;
    request_rows_delivered(r);
    outbox_add(h, r);
    return true;
}

/* Returns the number of a tenant's waiting requests beyond the free slots. A burst that an idle
 * cluster can take is not a queue, and requests that only wait for the next plan do not count. */
static uint32_t tenant_waiting(const struct head_core *h, uint64_t tenant)
{
    uint64_t n_slots = (uint64_t)h->n_live * h->config.max_num_seqs;
    uint64_t n_free = n_slots > h->n_running ? n_slots - h->n_running : 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->n_live; i++)
        n += scheduler_n_waiting(h->engine_slots[h->live[i]].scheduler, tenant);
    for (const struct request *r = h->held_first; r; r = r->next)
        n += r->tenant == tenant;
    return n > n_free ? n - (uint32_t)n_free : 0;
}

/* Returns the number of waiting requests beyond the places in the next plans. A burst that an
 * idle cluster can take is not a queue. If the last plan left a request waiting although slots
 * were free, the KV cache is full and the slots do not count. */
static uint64_t queue_length(const struct head_core *h)
{
    uint64_t n_free = 0;
    for (uint32_t i = 0; i < h->n_live; i++) {
        const struct engine_slot *l = &h->engine_slots[h->live[i]];
        if (l->n_left == 0 && l->n_running < h->config.max_num_seqs)
            n_free += h->config.max_num_seqs - l->n_running;
    }
    return h->n_waiting > n_free ? h->n_waiting - n_free : 0;
}

/* Returns true when the queue is full for this tenant. A full queue still accepts requests of
 * tenants that have few in it. Each such tenant gets up to a sixteenth of the queue, and all of
 * them together get up to one whole queue. */
static bool queue_is_full(const struct head_core *h, uint64_t tenant)
{
    uint32_t most = h->config.max_waiting;
    if (h->n_waiting < most || queue_length(h) < most)
        return false;
    return queue_length(h) >= 2 * (uint64_t)most || tenant_waiting(h, tenant) >= most / 16;
}

/* Returns true when a new request may wait. Sets `err` otherwise. */
static bool may_wait(const struct head_core *h, const struct request *r, struct error *err)
{
    uint32_t most = h->config.max_waiting_per_tenant;
    if (h->draining)
        error_set(err, STATUS_LIMIT,
                  "the cluster is draining and accepts no new requests. Try again later");
    else if (queue_is_full(h, r->tenant))
        error_set(err, STATUS_LIMIT,
                  "the cluster is overloaded: the queue is full. Try again later");
    else if (most && tenant_waiting(h, r->tenant) >= most)
        error_set(err, STATUS_LIMIT,
                  "this API key has its maximum number of waiting requests. Try again later");
    else
        return requests_has_room(h, r, err) == STATUS_OK;
    return false;
}

/* Returns true when no replica serves and the time of a start, as last measured, is longer than
 * the request allows. Sets predicted_ms. A start that was never measured breaks no promise. */
static bool start_breaks_promise(const struct head_core *h, struct request *r)
{
    if (!head_core_rests(h))
        return false;
    uint64_t ns = sleep_rests(h) ? h->sleep.wake_took_ns : h->scale.cold_start_ns;
    uint64_t waited = h->held_first ? h->now_ns - h->held_first->arrival_ns : 0;
    uint64_t ms = (ns > waited ? ns - waited : 0) / NS_PER_MS;
    r->promise.predicted_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
    return r->promise.predicted_ms > r->promise.slo_ms;
}

/* Refuses a promise because of the start. The request counts as an arrival that starts a replica,
 * because its client will come again. */
static void refuse_promise(struct head_core *h, struct gateway_peer *g, const struct msg_submit *m,
                           const struct request_promise *p)
{
    struct error err;
    promises_refuse(h, p, err.text, sizeof err.text);
    refuse(h, g, m, STATUS_LIMIT, err.text);
    if (g->n_refusals > 0) {
        g->refusals[g->n_refusals - 1].retry_after_s = promises_retry_after_s(p);
        g->refusals[g->n_refusals - 1].predicted_ttft_ms = p->predicted_ms;
    }
    h->arrival_seq++;
    if (sleep_rests(h))
        sleep_end(h, "a request with a promise");
}

static void on_submit(struct head_core *h, struct gateway_peer *g, const struct msg_submit *m)
{
    struct replaced before = {0};
    if (submit_to_open(h, g, m, &before))
        return;
    struct request *r = NULL;
    struct error err = {0};
    if (m->priority != 0 && !h->config.priorities) {
        error_set(&err, STATUS_INVALID,
                  "Got priority %d but priority scheduling is not enabled: start the cluster with "
                  "--scheduling-policy priority",
                  (int)m->priority);
        refuse(h, g, m, STATUS_INVALID, err.text);
        return;
    }
    if (adapter_bind_check(h, m, &err) != STATUS_OK) {
        refuse(h, g, m, err.status, err.text);
        return;
    }
    enum status s = new_request(h, m, &r, &err);
    if (s != STATUS_OK) {
        refuse(h, g, m, s, err.text);
        return;
    }
    if (!r->resubmitted && !may_wait(h, r, &err))
        s = err.status;
    else if (r->promise.state == PROMISE_ASKED && start_breaks_promise(h, r)) {
        refuse_promise(h, g, m, &r->promise);
        request_free(r);
        return;
    }
    if (s == STATUS_OK) {
        s = request_table_add(h->requests, r);
        if (s != STATUS_OK)
            error_set(&err, s, "the head holds its maximum number of requests. Try again later");
    }
    if (s != STATUS_OK) {
        refuse(h, g, m, s, err.text);
        request_free(r);
        return;
    }
    requests_take_room(h, r);
    r->sampling.lora_id = 0; /* the head alone decides which adapter is bound */
    r->i_gateway = g->index;
    r->gateway_session = g->session;
    r->arrival_seq = ++h->arrival_seq;
    r->n_delivered = m->ids.n - m->n_prompt;
    g->n_open++;
    count_request(h, r, m, &before);
    requests_hold(h, r);
    if (r->finish != FINISH_NONE) /* the request was already complete when the Submit arrived */
        requests_end(h, r, r->finish, STATUS_OK, "");
}

void submit_on_msg(struct head_core *h, struct gateway_peer *g, const struct msg_submit *m)
{
    struct msg_submit whole;
    struct error err;
    enum status s = recall_grammar(h, &g->grammar, m, &whole, &err);
    if (s != STATUS_OK)
        refuse(h, g, m, s, err.text);
    else
        on_submit(h, g, &whole);
}
