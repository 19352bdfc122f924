/* Gateways: their requests in, their tokens out. A gateway instance keeps its requests for the
 * grace time after its link is lost. In a new session nothing is delivered for a request before the
 * gateway has submitted it again, since only it knows what it has; what it does not submit again
 * within the grace time is cancelled. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/core/submit.h"
#include "head/request/logprobs.h"
#include "head/request/prompt_logprobs.h"
#include "head/state/head_core.h"

enum { OUTBOX_MIN = 64 };

/* ---- the outbox: an array, so that who walks it can ask for what comes ---- */

/* In place; more room only when that has not made half of it free. */
static void outbox_make_room(struct gateway *g)
{
    uint32_t n = 0;
    for (uint32_t i = g->outbox_begin; i < g->outbox_end; i++) {
        if (!g->outbox[i])
            continue;
        g->outbox[n] = g->outbox[i];
        g->outbox[n]->i_outbox = n + 1;
        n++;
    }
    g->outbox_begin = 0;
    g->outbox_end = n;
    if (n < g->outbox_cap / 2)
        return;
    g->outbox_cap = g->outbox_cap ? 2 * g->outbox_cap : OUTBOX_MIN;
    g->outbox = mem_realloc(g->outbox, g->outbox_cap * sizeof(struct request *));
}

/* What belongs to an older session is not sent: its Submit comes again. */
void outbox_add(struct head_core *h, struct request *r)
{
    struct gateway *g = h->gateways[r->i_gateway];
    if (r->i_outbox || r->gateway_session != g->session)
        return;
    if (g->outbox_end == g->outbox_cap)
        outbox_make_room(g);
    g->outbox[g->outbox_end++] = r;
    r->i_outbox = g->outbox_end;
}

void outbox_remove(struct head_core *h, struct request *r)
{
    if (r->i_outbox)
        h->gateways[r->i_gateway]->outbox[r->i_outbox - 1] = NULL;
    r->i_outbox = 0;
}

static void outbox_clear(struct gateway *g)
{
    for (uint32_t i = g->outbox_begin; i < g->outbox_end; i++)
        if (g->outbox[i])
            g->outbox[i]->i_outbox = 0;
    g->outbox_begin = g->outbox_end = 0;
}

/* ---- life ---- */

static struct gateway *find_instance(const struct head_core *h, uint64_t instance)
{
    for (uint32_t i = 0; i < GATEWAYS_MAX; i++) {
        if (h->gateways[i] && h->gateways[i]->instance == instance)
            return h->gateways[i];
    }
    return NULL;
}

static struct gateway *gateway_new(struct head_core *h, const struct peer *peer)
{
    uint32_t i = 0;
    while (i < GATEWAYS_MAX && h->gateways[i])
        i++;
    if (i == GATEWAYS_MAX)
        return NULL;
    struct gateway *g = mem_zalloc(sizeof *g);
    g->index = i;
    g->instance = peer->instance;
    h->gateways[i] = g;
    h->n_gateways++;
    return g;
}

void gateways_on_hello(struct head_core *h, struct peer *peer, const struct msg_hello *m)
{
    struct gateway *g = find_instance(h, peer->instance);
    bool again = g != NULL;
    if (!g)
        g = gateway_new(h, peer);
    if (!g) {
        peers_refuse(&h->peers, peer->addr, STATUS_LIMIT, "the head has as many gateways as it may",
                     h->now_ns);
        peers_remove(&h->peers, peer);
        return;
    }
    g->peer = peer;
    peer->owner = g;
    outbox_clear(g); /* of the session before */
    core_forget_grammar(&g->grammar);
    g->session = peer->link.session;
    g->hello_ns = h->now_ns;
    g->was_told = g->was_swept = false;
    g->told_adapters = 0;
    g->n_refusals = 0; /* their Submits come again */
    vocabularies_on_hello(g, m);
    snprintf(g->node, sizeof g->node, "%s", peer->node);
    events_add(&h->events, h->now_ns, LOG_INFO, again ? "gateway_reconnected" : "gateway_joined",
               "node=%s instance=%016llx open_requests=%u", log_quote(g->node),
               (unsigned long long)g->instance, g->n_open);
}

static void drop_requests(struct head_core *h, const struct gateway *g, bool only_not_resubmitted)
{
    struct request *r = request_table_next(h->requests, NULL), *next;
    for (; r; r = next) {
        next = request_table_next(h->requests, r);
        if (r->i_gateway == g->index && !(only_not_resubmitted && r->gateway_session == g->session))
            router_drop(h, r);
    }
}

static void gateway_remove(struct head_core *h, struct gateway *g)
{
    drop_requests(h, g, false);
    core_forget_grammar(&g->grammar);
    h->gateways[g->index] = NULL;
    h->n_gateways--;
    mem_free(g->refusals);
    mem_free(g->outbox);
    mem_free(g);
}

void gateways_on_lost(struct head_core *h, struct gateway *g, bool is_goodbye)
{
    events_add(&h->events, h->now_ns, is_goodbye ? LOG_INFO : LOG_WARN,
               is_goodbye ? "gateway_left" : "gateway_lost",
               "node=%s instance=%016llx open_requests=%u", log_quote(g->node),
               (unsigned long long)g->instance, g->n_open);
    g->peer = NULL;
    g->lost_ns = h->now_ns;
    if (is_goodbye)
        gateway_remove(h, g);
}

void gateways_tick(struct head_core *h)
{
    for (uint32_t i = 0; i < GATEWAYS_MAX; i++) {
        struct gateway *g = h->gateways[i];
        if (!g)
            continue;
        if (!g->peer && h->now_ns - g->lost_ns >= h->config.gateway_grace_ns)
            gateway_remove(h, g);
        else if (g->peer && !g->was_swept &&
                 h->now_ns - g->hello_ns >= h->config.gateway_grace_ns) {
            g->was_swept = true;
            drop_requests(h, g, true);
        }
    }
}

void gateways_free(struct head_core *h)
{
    for (uint32_t i = 0; i < GATEWAYS_MAX; i++) {
        if (h->gateways[i]) {
            core_forget_grammar(&h->gateways[i]->grammar);
            mem_free(h->gateways[i]->refusals);
            mem_free(h->gateways[i]->outbox);
            mem_free(h->gateways[i]);
        }
    }
}

/* ---- requests in ---- */

static void refuse(struct head_core *h, struct gateway *g, const struct msg_submit *m,
                   enum status status, const char *text)
{
    if (g->n_refusals == g->refusals_cap) {
        if (g->refusals_cap == REFUSALS_MAX) {
            /* it takes nothing and sends on: a new session starts from a clean slate */
            peers_close_session(&h->peers, g->peer);
            return;
        }
        g->refusals_cap = g->refusals_cap ? 2 * g->refusals_cap : 16;
        g->refusals = mem_realloc(g->refusals, g->refusals_cap * sizeof *g->refusals);
    }
    struct refusal *x = &g->refusals[g->n_refusals++];
    *x = (struct refusal){.id = m->id, .i_choice = m->i_choice, .attempt = m->attempt};
    x->status = status;
    uint32_t start_s = core_seconds_to_start(h);
    x->retry_after_s = status != STATUS_LIMIT ? 0 : start_s > 0 ? start_s : 1;
    snprintf(x->text, sizeof x->text, "%s", text);
    h->n_failed++;
}

/* The same request with no more tokens than we have: go on from there, nothing is run again. Rows
 * of log-probabilities are gone when they have been sent: it has all of those. */
static bool continues(const struct request *r, const struct msg_submit *m)
{
    if (r->is_scored && m->n_scored != r->scores->n_delivered)
        return false;
    return m->n_prompt == r->n_prompt && m->ids.n >= m->n_prompt && m->ids.n <= r->n_ids &&
           request_has_rows_from(r, m->ids.n - m->n_prompt) &&
           memcmp(m->ids.ptr, r->ids, m->ids.n * sizeof *r->ids) == 0;
}

/* True when an open request takes this Submit. */
static bool submit_to_open(struct head_core *h, struct gateway *g, const struct msg_submit *m)
{
    struct request *r = request_table_find(h->requests, m->id, m->i_choice);
    if (!r)
        return false;
    if (r->i_gateway != g->index) {
        refuse(h, g, m, STATUS_EXISTS, "another gateway has a request of this id");
        return true;
    }
    bool same_session = r->gateway_session == g->session;
    if (m->attempt < r->attempt || (m->attempt == r->attempt && same_session))
        return true;
    if (!continues(r, m)) {
        router_drop(h, r);
        return false;
    }
    r->attempt = m->attempt;
    if (r->i_group == NO_GROUP) /* in a scheduler its place in the queue must not change */
        r->resubmitted = true;
    r->gateway_session = g->session;
    r->n_delivered = m->ids.n - m->n_prompt;
    request_rows_delivered(r);
    outbox_add(h, r);
    return true;
}

/* Requests of a tenant that wait, beyond those for which slots are free: a burst that an idle
 * cluster can take is no queue, and who only waits for the next plan is not in one. */
static uint32_t tenant_waiting(const struct head_core *h, uint64_t tenant)
{
    uint64_t n_slots = (uint64_t)h->n_live * h->config.max_num_seqs;
    uint64_t n_free = n_slots > h->n_running ? n_slots - h->n_running : 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->n_live; i++)
        n += scheduler_n_waiting(h->lanes[h->live[i]].scheduler, tenant);
    for (const struct request *r = h->held_first; r; r = r->next)
        n += r->tenant == tenant;
    return n > n_free ? n - (uint32_t)n_free : 0;
}

/* Requests that wait, beyond those for which the next plans have a place: a burst that an idle
 * cluster can take is no queue. Where the last plan left somebody behind a free slot is none: the
 * KV cache is full. */
static uint64_t queue_length(const struct head_core *h)
{
    uint64_t n_free = 0;
    for (uint32_t i = 0; i < h->n_live; i++) {
        const struct lane *l = &h->lanes[h->live[i]];
        if (l->n_left == 0 && l->n_running < h->config.max_num_seqs)
            n_free += h->config.max_num_seqs - l->n_running;
    }
    return h->n_waiting > n_free ? h->n_waiting - n_free : 0;
}

/* A full queue has places left for tenants that have few in it: a sixteenth of the queue for each,
 * and as many as the queue has for all of them. */
static bool queue_is_full(const struct head_core *h, uint64_t tenant)
{
    uint32_t most = h->config.max_waiting;
    if (h->n_waiting < most || queue_length(h) < most)
        return false;
    return queue_length(h) >= 2 * (uint64_t)most || tenant_waiting(h, tenant) >= most / 16;
}

/* Whether a new request may wait here; false: why. */
static bool may_wait(const struct head_core *h, const struct request *r, struct error *err)
{
    uint32_t most = h->config.max_waiting_per_tenant;
    if (h->draining)
        error_set(err, STATUS_LIMIT, "the cluster is draining");
    else if (queue_is_full(h, r->tenant))
        error_set(err, STATUS_LIMIT, "the cluster is overloaded: the queue is full");
    else if (most && tenant_waiting(h, r->tenant) >= most)
        error_set(err, STATUS_LIMIT, "this API key has as many requests waiting as it may");
    else
        return core_has_room(h, r, err) == STATUS_OK;
    return false;
}

static void on_submit(struct head_core *h, struct gateway *g, const struct msg_submit *m)
{
    if (submit_to_open(h, g, m))
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
    if (core_check_adapter(h, m, &err) != STATUS_OK) {
        refuse(h, g, m, err.status, err.text);
        return;
    }
    enum status s = core_new_request(h, m, &r, &err);
    if (s != STATUS_OK) {
        refuse(h, g, m, s, err.text);
        return;
    }
    if (!r->resubmitted && !may_wait(h, r, &err))
        s = err.status;
    if (s == STATUS_OK) {
        s = request_table_add(h->requests, r);
        if (s != STATUS_OK)
            error_set(&err, s, "the head holds as many requests as it may");
    }
    if (s != STATUS_OK) {
        refuse(h, g, m, s, err.text);
        request_free(r);
        return;
    }
    core_take_room(h, r);
    r->sampling.lora_id = 0; /* what is loaded is our word */
    r->i_gateway = g->index;
    r->gateway_session = g->session;
    r->arrival_seq = ++h->arrival_seq;
    r->n_delivered = m->ids.n - m->n_prompt;
    g->n_open++;
    router_hold(h, r);
    if (r->finish != FINISH_NONE) /* it came back complete */
        router_end(h, r, r->finish, STATUS_OK, "");
}

static void on_any_submit(struct head_core *h, struct gateway *g, const struct msg_submit *m)
{
    struct msg_submit whole;
    struct error err;
    enum status s = core_recall_grammar(h, &g->grammar, m, &whole, &err);
    if (s != STATUS_OK)
        refuse(h, g, m, s, err.text);
    else
        on_submit(h, g, &whole);
}

static void on_cancel(struct head_core *h, struct gateway *g, struct request_id id,
                      uint32_t i_choice, uint32_t attempt, bool is_finish)
{
    struct request *r = request_table_find(h->requests, id, i_choice);
    if (!r || r->i_gateway != g->index || attempt < r->attempt)
        return;
    uint64_t n_cancelled = h->n_cancelled;
    router_drop(h, r);
    if (is_finish && h->n_cancelled > n_cancelled) { /* a stop string is an end like others */
        h->n_cancelled--;
        h->n_finished++;
        ended_requests_finish_last(&h->ended);
    }
}

void gateways_on_msg(struct head_core *h, struct gateway *g, const struct msg *m)
{
    switch (m->type) {
    case MSG_SUBMIT:
        on_any_submit(h, g, &m->submit);
        break;
    case MSG_CANCEL:
        on_cancel(h, g, m->cancel.id, m->cancel.i_choice, m->cancel.attempt, false);
        break;
    case MSG_FINISH:
        on_cancel(h, g, m->finish.id, m->finish.i_choice, m->finish.attempt, true);
        break;
    case MSG_ADAPTER_ORDER:
        core_order_adapter(h, g, &m->adapter_order);
        break;
    default:
        break;
    }
}

/* ---- tokens out ---- */

/* What one message may weigh on the wire, roughly: a gateway that was away gets much at once, and a
 * frame has a size that it must not pass. */
#define TOKENS_BYTES (1u << 20)
#define ITEM_BYTES   256u /* all of an item but ids and rows */
#define ID_BYTES     5u
#define ROW_BYTES    16u /* of a row of log-probabilities, and 9 for each of its entries */

/* How many of the tokens that r's gateway does not have fit in the budget, which shrinks; 0: none
 * but there are some. */
static uint32_t tokens_that_fit(const struct request *r, uint64_t *budget)
{
    uint32_t n = 0, n_new = request_n_generated(r) - r->n_delivered;
    if (request_pools(r)) { /* all of it: the next one waits for the next message */
        uint64_t bytes = r->vector.n * sizeof *r->vector.ptr;
        *budget -= bytes < *budget ? bytes : *budget;
        return n_new;
    }
    const struct logprob_row *rows = request_undelivered_rows(r);
    for (; n < n_new; n++) {
        uint64_t bytes = ID_BYTES;
        if (rows)
            bytes += ROW_BYTES + (ID_BYTES + 4u) * rows[n].ids.n;
        if (bytes > *budget)
            break;
        *budget -= bytes;
    }
    return n;
}

/* The same of rows of its prompt, of which as many are sent at once as lie side by side. */
static uint32_t scores_that_fit(const struct request *r, uint64_t *budget)
{
    const struct logprob_row *rows;
    uint32_t n = 0, n_new = request_next_scores(r, &rows);
    for (; n < n_new; n++) {
        uint64_t bytes = ROW_BYTES + (ID_BYTES + 4u) * rows[n].ids.n;
        if (bytes > *budget)
            break;
        *budget -= bytes;
    }
    return n;
}

static bool are_all_scores(const struct request *r, uint32_t n)
{
    return r->scores->n_delivered + n == r->scores->n_known;
}

static void fill_item(const struct request *r, uint64_t *budget, struct tokens_item *out)
{
    uint32_t n_scores = r->is_scored ? scores_that_fit(r, budget) : 0, n = 0;
    if (!r->is_scored || are_all_scores(r, n_scores))
        n = tokens_that_fit(r, budget);
    request_fill_tokens(r, n_scores, n, out);
}

/* True: all that there is of it. */
static bool note_delivered(struct request *r, const struct tokens_item *item)
{
    r->n_delivered += request_pools(r) ? request_n_generated(r) : item->ids.n;
    request_rows_delivered(r);
    if (item->n_prompt_logprobs > 0)
        request_scores_delivered(r, item->n_prompt_logprobs);
    return r->n_delivered == request_n_generated(r) && (!r->is_scored || are_all_scores(r, 0));
}

static uint32_t fill_refusals(struct head_core *h, const struct gateway *g)
{
    uint32_t n = g->n_refusals < TOKENS_ITEMS_MAX ? g->n_refusals : TOKENS_ITEMS_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const struct refusal *x = &g->refusals[i];
        h->items[i] = (struct tokens_item){.id = x->id,
                                           .i_choice = x->i_choice,
                                           .attempt = x->attempt,
                                           .finish = FINISH_ERROR,
                                           .status = x->status,
                                           .retry_after_s = x->retry_after_s,
                                           .text = str_from(x->text)};
    }
    return n;
}

static enum status send_items(struct head_core *h, struct gateway *g, uint32_t n)
{
    /* Of no group in particular: the term is what gateways learn from it. */
    uint64_t epoch = cluster_need_term(&h->cluster) << 32 | (h->cluster.n_epochs & 0xFFFFFFFFu);
    struct msg m = {.type = MSG_TOKENS,
                    .tokens = {.term_epoch = epoch, .items = h->items, .n_items = n}};
    return peers_send(&h->peers, g->peer, &m);
}

static void prefetch(const struct gateway *g, uint32_t i)
{
    const struct request *far = NULL, *near = NULL;
    if (i + REQUEST_PREFETCH_FAR < g->outbox_end)
        far = g->outbox[i + REQUEST_PREFETCH_FAR];
    if (i + REQUEST_PREFETCH_NEAR < g->outbox_end)
        near = g->outbox[i + REQUEST_PREFETCH_NEAR];
    if (far)
        request_prefetch(far);
    if (near)
        request_prefetch_ids(near);
}

/* One message from the outbox's head; false: nothing more can go now. */
static bool flush_tokens(struct head_core *h, struct gateway *g)
{
    uint32_t n = 0;
    uint64_t budget = TOKENS_BYTES;
    while (g->outbox_begin < g->outbox_end && !g->outbox[g->outbox_begin])
        g->outbox_begin++;
    for (uint32_t i = g->outbox_begin;
         i < g->outbox_end && n < TOKENS_ITEMS_MAX && budget >= ITEM_BYTES; i++) {
        struct request *r = g->outbox[i];
        prefetch(g, i);
        if (!r)
            continue;
        budget -= ITEM_BYTES;
        h->item_requests[n] = r;
        fill_item(r, &budget, &h->items[n++]);
    }
    if (n == 0 || send_items(h, g, n) != STATUS_OK)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = h->item_requests[i];
        bool all = note_delivered(r, &h->items[i]);
        outbox_remove(h, r);
        if (!all)
            outbox_add(h, r); /* the rest goes in a later message */
        else if (r->finish != FINISH_NONE)
            router_drop(h, r);
    }
    return true;
}

static bool load_differs(const struct cluster_load *a, const struct cluster_load *b)
{
    return a->n_blocks != b->n_blocks || a->n_blocks_used != b->n_blocks_used ||
           a->n_preemptions != b->n_preemptions || a->n_draft_steps != b->n_draft_steps ||
           a->block_tokens != b->block_tokens;
}

/* Summing over the groups is too much for every turn, and nobody looks that often. */
static const struct cluster_load *load_now(struct head_core *h)
{
    if (h->load_ns && h->now_ns - h->load_ns < NS_PER_S)
        return &h->load;
    struct scheduler_stats x;
    dispatch_totals(h, &x);
    h->load_ns = h->now_ns;
    h->load = (struct cluster_load){.n_blocks = x.n_blocks,
                                    .n_blocks_used = x.n_blocks_used,
                                    .n_preemptions = x.n_preemptions,
                                    .n_draft_steps = x.n_draft_steps,
                                    .n_drafted = x.n_drafted,
                                    .n_accepted = x.n_accepted,
                                    .max_loras = h->config.max_loras,
                                    .prefix_caching = h->config.enable_prefix_caching};
    if (h->n_live > 0)
        h->load.block_tokens = h->lanes[h->live[0]].group->kv_groups[0].block_tokens;
    return &h->load;
}

static void tell_cluster(struct head_core *h, struct gateway *g, const struct msg_cluster *now)
{
    bool changed = !g->was_told || now->term != g->told.term ||
                   now->n_groups_ready != g->told.n_groups_ready ||
                   now->n_groups != g->told.n_groups || now->n_workers != g->told.n_workers ||
                   now->max_model_len != g->told.max_model_len ||
                   now->vocab_size != g->told.vocab_size || now->draining != g->told.draining ||
                   now->scores_prompts != g->told.scores_prompts;
    changed |= (now->start_s > 0) != (g->told.start_s > 0);
    bool load = now->start_s != g->told.start_s || now->running != g->told.running ||
                now->waiting != g->told.waiting || load_differs(&now->load, &g->told.load);
    if (!changed && !(load && h->now_ns - g->told_ns >= NS_PER_S))
        return;
    struct msg m = {.type = MSG_CLUSTER, .cluster = *now};
    if (peers_send(&h->peers, g->peer, &m) != STATUS_OK)
        return;
    g->told = *now;
    g->told.model = STR("");
    g->told_ns = h->now_ns;
    g->was_told = true;
}

void gateways_flush(struct head_core *h)
{
    uint32_t n_left = h->n_gateways;
    if (n_left == 0)
        return;
    core_send_answers(h);
    struct served_model model = router_model(h);
    struct msg_cluster now = {
        .term = h->cluster.term,
        .n_groups_ready = h->n_live,
        .n_groups = h->cluster.n_groups,
        .n_workers = h->cluster.n_workers,
        .model = str_from(model.name),
        .max_model_len = model.max_model_len,
        .vocab_size = model.vocab_size,
        .running = h->n_running,
        .waiting = h->n_waiting,
        .draining = h->draining,
        .load = *load_now(h),
        .scores_prompts = dispatch_scores_prompts(h),
        .one_class = !h->config.priorities,
        .start_s = core_seconds_to_start(h),
    };
    for (uint32_t i = 0; n_left > 0; i++) {
        struct gateway *g = h->gateways[i];
        n_left -= g != NULL;
        if (!g || !g->peer || !g->peer->open)
            continue;
        tell_cluster(h, g, &now);
        core_tell_adapters(h, g);
        uint32_t n = fill_refusals(h, g);
        if (n > 0 && send_items(h, g, n) == STATUS_OK) {
            g->n_refusals -= n;
            memmove(g->refusals, g->refusals + n, g->n_refusals * sizeof *g->refusals);
        }
        while (flush_tokens(h, g))
            ;
    }
}
