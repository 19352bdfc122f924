/* Computes a hash over everything that decides the possible next events: protocol states, frames
 * in flight, ages of timers in ticks, tokens. Counters, texts and mere names are left out.
 * Session and routing ids are replaced by whether they are the receiver's current ids. The
 * scheduler's inner state enters through the plans of this epoch, which determine it. explore.c
 * compares these hashes to recognise visited states. */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "head/state/head_core.h"
#include "tests/model/world_internal.h"

struct mix {
    uint64_t h;
};

static void put(struct mix *m, uint64_t v)
{
    m->h = XXH3_64bits_withSeed(&v, sizeof v, m->h);
}

static void put_age(struct mix *m, const struct world *w, uint64_t then_ns)
{
    put(m, then_ns == 0 ? UINT64_MAX : (w->now_ns - then_ns) / WORLD_TICK_NS);
}

/* Adds the frames of a queue. Their seq and session are hashed relative to the reader's own
 * values. */
static void put_queue(struct mix *m, const struct frame_queue *q, uint64_t session, uint64_t seq)
{
    put(m, q->n);
    for (uint32_t i = 0; i < q->n; i++) {
        struct frame_header h = {0};
        struct str f = {q->at[i].ptr, q->at[i].len};
        if (frame_parse_header(f, &h, NULL) != STATUS_OK)
            continue;
        put(m, h.type);
        put(m, h.session == session ? h.seq - seq : UINT64_MAX);
        if (h.type != MSG_WELCOME && h.type != MSG_HEARTBEAT)
            put(m, XXH3_64bits(f.ptr + FRAME_HEADER_BYTES, f.len - FRAME_HEADER_BYTES));
    }
}

static const struct peer *peer_of(const struct world *w, uint32_t at, uint32_t who)
{
    enum peer_role role = who == WORLD_GATEWAY ? ROLE_GATEWAY : ROLE_WORKER;
    const struct head_core *core = w->heads[at].core;
    return core ? peers_find_instance(&core->peers, role, w->procs[who].instance) : NULL;
}

static void put_until(struct mix *m, const struct world *w, uint64_t until_ns)
{
    put(m, until_ns > w->now_ns ? (until_ns - w->now_ns) / WORLD_TICK_NS : 0);
}

static void put_engine(struct mix *m, const struct world *w)
{
    const struct engine_client *c = &w->engine;
    put(m, c->state | c->connection_lost << 2 | c->connected << 3 | w->is_connecting << 4 |
               (uint64_t)(c->n_failures < 5 ? c->n_failures : 5) << 8);
    put(m, c->term_seen << 32 | w->gateway_term);
    put_until(m, w, w->procs[WORLD_GATEWAY].retry_ns);
    if (c->state == ENGINE_DOWN)
        put_until(m, w, c->retry_ns);
    else
        put_age(m, w, c->state == ENGINE_OPEN ? c->heard_ns : c->greeted_ns);
    put(m, c->is_overdue);
    if (!c->connected)
        put_age(m, w, c->tried_ns);
}

static void put_proc(struct mix *m, const struct world *w, uint32_t who)
{
    const struct proc *p = &w->procs[who];
    const struct link *link = who == WORLD_GATEWAY ? &w->engine.link : &p->link;
    const struct peer *x = peer_of(w, p->at, who), *old = peer_of(w, p->stale_at, who);
    put(m,
        p->alive | p->cut << 1 | p->broken << 2 | p->state << 3 | p->at << 8 | p->stale_at << 10);
    put(m, p->conn == 0);
    put_until(m, w, p->stopped_until_ns);
    if (who == WORLD_GATEWAY)
        put_engine(m, w);
    else if (p->state == PROC_DOWN)
        put_until(m, w, p->retry_ns);
    else
        put_age(m, w, p->heard_ns);
    for (uint32_t i = 0; i < w->config.n_heads; i++) {
        const struct peer *y = peer_of(w, i, who);
        put(m, y ? 1 | y->open << 1 | y->suspect << 2 | y->is_overdue << 3 : 0);
        if (!y)
            continue;
        put_age(m, w, y->heard_ns);
        put(m, y->told_term);
        put(m, y->open && y->link.session == link->session);
    }
    put_queue(m, &p->to_head, x && x->open ? x->link.session : 0, x ? x->link.seq_in : 0);
    put_queue(m, &p->stale, old && old->open ? old->link.session : 0, old ? old->link.seq_in : 0);
    put_queue(m, &p->to_peer, link->session, link->seq_in);
}

static void put_rank(struct mix *m, const struct world *w, const struct rank *r)
{
    const struct rank_state *s = &r->state;
    put(m, s->phase | s->gap_sent << 4 | s->form_pending << 5 | s->join_pending << 6 |
               r->joining << 7 | r->aborting << 8 | r->was_stopped << 9 |
               (uint64_t)s->n_answers << 16);
    put(m, s->term_seen);
    put(m, s->term_epoch);
    put(m, s->comm_epoch);
    put(m, s->step_received);
    put(m, s->step_executed);
    put(m, r->n_plans);
    for (uint32_t i = 0; i < r->n_plans; i++)
        put_until(m, w, r->plans[i].due_ns);
    put(m, s->replica_id << 8 | s->rank);
    for (uint32_t i = 0; i < s->n_answers; i++)
        put(m, s->answers[i]);
}

static void put_worker(struct mix *m, const struct world *w, const struct worker *x)
{
    put(m, x->peer->instance);
    put(m, x->todo | x->formed << 3 | x->aborted << 4 | x->plan_unsent << 5 | x->busy << 6);
    put(m, x->abort_epoch);
    put(m, x->held_epoch);
    put(m, x->held_epoch ? x->held_position | (uint64_t)x->held_tp << 32 : 0);
    put(m, x->replica ? x->position + 1 : 0);
    if (x->abort_epoch)
        put_age(m, w, x->abort_since_ns);
    if (x->held_epoch)
        put_age(m, w, x->held_since_ns);
    if (w->config.elastic && worker_is_free(x))
        /* this time decides when a replica may grow by this rank */
        put_age(m, w, x->free_since_ns);
    put(m, x->step_received);
    put(m, x->step_executed);
}

static void put_replica(struct mix *m, const struct world *w, const struct replica *g)
{
    put(m, g->id << 8 | g->state);
    put(m, g->tp << 1 | g->grows);
    put(m, g->epoch);
    put(m, g->n_failures);
    if (g->state == REPLICA_WAITING) {
        put_age(m, w, g->waiting_since_ns);
        put(m, g->retry_at_ns > w->now_ns ? g->retry_at_ns - w->now_ns : 0);
    } else if (g->state != REPLICA_READY && g->state != REPLICA_ABORTING) {
        put(m, g->deadline_ns - w->now_ns);
    }
}

static void put_core(struct mix *m, const struct world *w, const struct head_core *h)
{
    put(m, h->cluster.term);
    put(m, h->cluster.highest_term_seen);
    put(m, h->cluster.n_epochs);
    for (const struct worker *x = h->cluster.workers; x; x = x->next)
        put_worker(m, w, x);
    for (uint32_t i = 0; i < h->config.cluster.max_replicas; i++) {
        const struct engine_slot *l = &h->engine_slots[i];
        if (h->cluster.replicas[i])
            put_replica(m, w, h->cluster.replicas[i]);
        if (!l->scheduler)
            continue;
        put(m, l->plan_pending);
        put(m, l->last_step);
        put(m, l->last_result);
        put(m, XXH3_64bits(l->plan.ptr, l->plan.len > 32 ? 0 : l->plan.len));
        if (l->plan.len > FRAME_HEADER_BYTES)
            put(m, XXH3_64bits(l->plan.ptr + FRAME_HEADER_BYTES, l->plan.len - FRAME_HEADER_BYTES));
    }
    for (uint32_t i = 0; i < w->config.n_requests; i++) {
        const struct request *r = request_table_find(h->requests, (struct request_id){7, i}, 0);
        put(m, r ? r->state + 1 : 0);
        if (!r)
            continue;
        put(m, r->attempt);
        put(m, r->n_ids);
        put(m, r->n_delivered);
        put(m, r->n_losses);
        put(m, r->n_ids_at_loss);
        put(m, r->i_replica);
        put(m, r->i_outbox != 0);
        const struct gateway_peer *g = h->gateways[r->i_gateway];
        put(m, g && r->gateway_session == g->session);
    }
    const struct gateway_peer *g = h->gateways[0];
    if (g && !g->peer)
        put_age(m, w, g->lost_ns);
    else if (g)
        put(m, g->was_swept);
}

static void put_head(struct mix *m, const struct world *w, const struct world_head *h)
{
    const struct lease *l = &h->lease;
    put(m, (h->core != NULL) | h->serves << 1 | h->stage << 2);
    if (h->core)
        put_core(m, w, h->core);
    if (!has_two_heads(w))
        return;
    put_until(m, w, h->stopped_until_ns);
    put_until(m, w, h->cut_until_ns);
    put(m, l->state | l->is_up << 2 | l->is_watching << 3 | l->open << 4);
    if (l->is_watching)
        put_age(m, w, l->watched_ns);
    put_until(m, w, l->ask_ns);
    put(m, l->term << 40 | l->term_seen << 20 | l->store_term);
    if (h->stage != QUESTION_NONE)
        put_age(m, w, l->asked_ns);
    if (h->stage == QUESTION_ASKED)
        put(m, (uint64_t)h->question.what << 40 | h->question.wanted << 20 | h->question.known);
    if (h->stage == QUESTION_ANSWERED)
        put(m, (uint64_t)h->answer.holder << 20 | h->answer.term);
}

static void put_store(struct mix *m, const struct store_model *s)
{
    put(m, s->term << 32 | s->owner_left);
    put(m, (uint64_t)(s->owner + 1) << 8 | (uint64_t)(s->last + 1));
    put(m, (uint64_t)s->asked_left[0] << 32 | s->asked_left[1]);
}

uint64_t world_fingerprint(const struct world *w)
{
    struct mix m = {.h = w->n_faults};
    put(&m, w->stable | w->was_emptied << 1 | w->was_harmed << 2);
    put(&m, w->given);
    for (uint32_t i = 0; i < WORLD_PEERS; i++) {
        if (is_peer(w, i))
            put_proc(&m, w, i);
    }
    for (uint32_t i = 0; i < w->config.n_ranks; i++) {
        if (w->procs[i].alive)
            put_rank(&m, w, &w->ranks[i]);
    }
    for (uint32_t i = 0; i < w->config.n_requests; i++) {
        const struct client_request *r = &w->requests[i];
        put(&m, r->stream.phase);
        put(&m, r->stream.attempt);
        put(&m, r->stream.n_received);
    }
    for (uint32_t i = 0; i < w->config.n_heads; i++)
        put_head(&m, w, &w->heads[i]);
    put_store(&m, &w->store);
    return m.h;
}

/* ---- text for people ---- */

static void print_head(const struct world_head *h)
{
    if (!h->core) {
        printf("  head%u: dead\n", h->index);
        return;
    }
    printf("  head%u: %s, term %llu, %u workers;", h->index, h->serves ? "serves" : "waits",
           (unsigned long long)h->core->cluster.term, h->core->cluster.n_workers);
    for (uint32_t i = 0; i < h->core->config.cluster.max_replicas; i++) {
        const struct replica *g = h->core->cluster.replicas[i];
        if (g)
            printf(" group %llu %llx %s", (unsigned long long)g->id, (unsigned long long)g->epoch,
                   replica_state_name(g->state));
    }
    printf("\n");
}

void world_print(const struct world *w)
{
    printf("at %.2f s; store: term %llu, owner %d\n", (double)w->now_ns / 1e9,
           (unsigned long long)w->store.term, w->store.owner);
    for (uint32_t i = 0; i < w->config.n_heads; i++)
        print_head(&w->heads[i]);
    for (uint32_t i = 0; i < WORLD_PEERS; i++) {
        const struct proc *p = &w->procs[i];
        const struct rank_state *s = i < WORLD_RANKS ? &w->ranks[i].state : NULL;
        if (is_peer(w, i))
            printf("  peer%u: alive %d, head%u, link %d, queues %u %u %u", i, p->alive, p->at,
                   p->state, p->to_head.n, p->stale.n, p->to_peer.n);
        if (is_peer(w, i) && s)
            printf(", %s in %llx, step %llu of %llu", rank_phase_name(s->phase),
                   (unsigned long long)s->term_epoch, (unsigned long long)s->step_executed,
                   (unsigned long long)s->step_received);
        printf(is_peer(w, i) ? "\n" : "");
    }
    for (uint32_t i = 0; i < w->config.n_requests; i++)
        printf("  request %u: %u tokens, %u ends\n", i, w->requests[i].stream.n_received,
               w->requests[i].n_ends);
}
