/* Handles gateways, which connect and leave, send requests and get tokens.
 *
 * core.c passes each gateway's messages to `gateways_on_msg`: Submits are passed to submit.c,
 * cancels end requests. `gateways_flush` sends each gateway the cluster's state and calls
 * deliver.c.
 *
 * Invariants: everything runs on the loop thread. A gateway instance keeps its requests for the
 * grace time after its link is lost. In a new session nothing is delivered for a request before
 * the gateway has submitted it again, since only the gateway knows which tokens it has. A
 * request that the gateway does not submit again within the grace time is cancelled. */
#include "head/core/gateways.h"

#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/core/adapter_orders.h"
#include "head/core/deliver.h"
#include "head/core/scale.h"
#include "head/core/submit.h"
#include "head/state/engine_slots.h"
#include "head/state/outbox.h"
#include "head/state/requests.h"
#include "head/state/served_model.h"

/* ---- connect and leave ---- */

static struct gateway_peer *find_instance(const struct head_core *h, uint64_t instance)
{
    for (uint32_t i = 0; i < GATEWAYS_MAX; i++) {
        if (h->gateways[i] && h->gateways[i]->instance == instance)
            return h->gateways[i];
    }
    return NULL;
}

static struct gateway_peer *gateway_new(struct head_core *h, const struct peer *peer)
{
    uint32_t i = 0;
    while (i < GATEWAYS_MAX && h->gateways[i])
        i++;
    if (i == GATEWAYS_MAX)
        return NULL;
    struct gateway_peer *g = mem_zalloc(sizeof *g);
    g->index = i;
    g->instance = peer->instance;
    h->gateways[i] = g;
    h->n_gateways++;
    return g;
}

static void take_model(struct gateway_peer *g, const struct msg_hello *m)
{
    g->vocabulary = m->has_vocabulary ? m->vocabulary : (struct vocabulary){0};
    snprintf(g->model, sizeof g->model, STR_FMT,
             (int)(m->model.len < sizeof g->model ? m->model.len : sizeof g->model - 1),
             m->model.ptr ? m->model.ptr : "");
}

void gateways_on_hello(struct head_core *h, struct peer *peer, const struct msg_hello *m)
{
    struct gateway_peer *g = find_instance(h, peer->instance);
    bool again = g != NULL;
    if (!g)
        g = gateway_new(h, peer);
    if (!g) {
        peers_refuse(&h->peers, peer->addr, STATUS_LIMIT,
                     "the head has its maximum number of gateways", h->now_ns);
        peers_remove(&h->peers, peer);
        return;
    }
    g->peer = peer;
    peer->owner = g;
    outbox_clear(g); /* the outbox has entries of the previous session */
    submit_forget_grammar(&g->grammar);
    g->session = peer->link.session;
    g->hello_ns = h->now_ns;
    g->was_told = g->was_swept = false;
    g->told_adapters = 0;
    g->n_refusals = 0; /* the gateway submits those requests again */
    take_model(g, m);
    snprintf(g->node, sizeof g->node, "%s", peer->node);
    events_add(&h->events, h->now_ns, LOG_INFO, again ? "gateway_reconnected" : "gateway_joined",
               "node=%s instance=%016llx open_requests=%u", log_quote(g->node),
               (unsigned long long)g->instance, g->n_open);
}

static void drop_requests(struct head_core *h, const struct gateway_peer *g,
                          bool only_not_resubmitted)
{
    struct request *r = request_table_next(h->requests, NULL), *next;
    for (; r; r = next) {
        next = request_table_next(h->requests, r);
        if (r->i_gateway == g->index && !(only_not_resubmitted && r->gateway_session == g->session))
            requests_drop(h, r);
    }
}

static void gateway_remove(struct head_core *h, struct gateway_peer *g)
{
    drop_requests(h, g, false);
    submit_forget_grammar(&g->grammar);
    h->gateways[g->index] = NULL;
    h->n_gateways--;
    mem_free(g->refusals);
    mem_free(g->outbox);
    mem_free(g);
}

void gateways_on_lost(struct head_core *h, struct gateway_peer *g, bool is_goodbye)
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
        struct gateway_peer *g = h->gateways[i];
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
            submit_forget_grammar(&h->gateways[i]->grammar);
            mem_free(h->gateways[i]->refusals);
            mem_free(h->gateways[i]->outbox);
            mem_free(h->gateways[i]);
        }
    }
}

/* ---- messages ---- */

static void on_cancel(struct head_core *h, struct gateway_peer *g, struct request_id id,
                      uint32_t i_choice, uint32_t attempt, bool is_finish)
{
    struct request *r = request_table_find(h->requests, id, i_choice);
    if (!r || r->i_gateway != g->index || attempt < r->attempt)
        return;
    uint64_t n_cancelled = h->n_cancelled;
    requests_drop(h, r);
    if (is_finish && h->n_cancelled > n_cancelled) { /* a stop string is a normal end */
        h->n_cancelled--;
        h->n_finished++;
        ended_requests_finish_last(&h->ended);
    }
}

void gateways_on_msg(struct head_core *h, struct gateway_peer *g, const struct msg *m)
{
    switch (m->type) {
    case MSG_SUBMIT:
        submit_on_msg(h, g, &m->submit);
        break;
    case MSG_CANCEL:
        on_cancel(h, g, m->cancel.id, m->cancel.i_choice, m->cancel.attempt, false);
        break;
    case MSG_FINISH:
        on_cancel(h, g, m->finish.id, m->finish.i_choice, m->finish.attempt, true);
        break;
    case MSG_ADAPTER_ORDER:
        adapter_orders_take(h, g, &m->adapter_order);
        break;
    default:
        break;
    }
}

/* ---- state sent to gateways ---- */

static bool load_differs(const struct cluster_load *a, const struct cluster_load *b)
{
    return a->n_blocks != b->n_blocks || a->n_blocks_used != b->n_blocks_used ||
           a->n_preemptions != b->n_preemptions || a->n_draft_steps != b->n_draft_steps ||
           a->block_tokens != b->block_tokens;
}

/* Returns the load of all replicas, at most one second old. Computing the sum in every turn
 * would take too long. */
static const struct cluster_load *load_now(struct head_core *h)
{
    if (h->load_ns && h->now_ns - h->load_ns < NS_PER_S)
        return &h->load;
    struct scheduler_stats x;
    engine_slots_totals(h, &x);
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
        h->load.block_tokens = h->engine_slots[h->live[0]].replica->kv_groups[0].block_tokens;
    return &h->load;
}

static void tell_cluster(struct head_core *h, struct gateway_peer *g, const struct msg_cluster *now)
{
    bool changed = !g->was_told || now->term != g->told.term ||
                   now->n_replicas_ready != g->told.n_replicas_ready ||
                   now->n_replicas != g->told.n_replicas || now->n_workers != g->told.n_workers ||
                   now->max_model_len != g->told.max_model_len ||
                   now->vocab_size != g->told.vocab_size || now->draining != g->told.draining ||
                   now->gives_prompt_logprobs != g->told.gives_prompt_logprobs;
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
    adapter_orders_answer(h);
    struct served_model model = served_model_now(h);
    struct msg_cluster now = {
        .term = h->cluster.term,
        .n_replicas_ready = h->n_live,
        .n_replicas = h->cluster.n_replicas,
        .n_workers = h->cluster.n_workers,
        .model = str_from(model.name),
        .max_model_len = model.max_model_len,
        .vocab_size = model.vocab_size,
        .running = h->n_running,
        .waiting = h->n_waiting,
        .draining = h->draining,
        .load = *load_now(h),
        .gives_prompt_logprobs = engine_slots_give_prompt_logprobs(h),
        .one_class = !h->config.priorities,
        .start_s = scale_seconds_to_start(h),
    };
    for (uint32_t i = 0; n_left > 0; i++) {
        struct gateway_peer *g = h->gateways[i];
        n_left -= g != NULL;
        if (!g || !g->peer || !g->peer->open)
            continue;
        tell_cluster(h, g, &now);
        adapter_orders_tell(h, g);
        deliver(h, g);
    }
}
