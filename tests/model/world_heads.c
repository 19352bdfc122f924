/* Runs the heads and their store. A single head has no store and serves from the start. With two
 * heads, each has the real lease. Its questions are answered at once unless the answer orders a
 * change. Those answers are interleaved with all other actions (lease_explore_test.c explores
 * the lease's questions on their way). The checks here are that no head serves without a lease,
 * and that head_core_check holds. */
#include <string.h>

#include "common/base/mem.h"
#include "head/state/head_core.h"
#include "tests/model/world_internal.h"

#define TTL_TICKS ((uint32_t)(WORLD_TTL_NS / WORLD_TICK_NS))

static struct bus_peer address(uint32_t conn)
{
    return (struct bus_peer){.n = 4,
                             .id = {(uint8_t)conn, (uint8_t)(conn >> 8), (uint8_t)(conn >> 16), 1}};
}

/* Returns the number of results that the head had for the plan in this frame. The plan may rely
 * on these results. Returns 0 for frames of other types. */
static uint64_t results_in(const struct head_core *core, struct str frame)
{
    struct frame_header h;
    uint64_t n = 0;
    if (frame_parse_header(frame, &h, NULL) != STATUS_OK || h.type != MSG_PLAN)
        return 0;
    for (uint32_t i = 0; i < core->config.cluster.max_replicas; i++) {
        const struct engine_slot *l = &core->engine_slots[i];
        bool is_its = l->scheduler && l->plan.len == frame.len &&
                      memcmp(l->plan.ptr + FRAME_HEADER_BYTES, frame.ptr + FRAME_HEADER_BYTES,
                             frame.len - FRAME_HEADER_BYTES) == 0;
        n = is_its ? l->last_result : n;
    }
    return n;
}

static enum status head_send(void *ctx, struct bus_peer to, struct str frame)
{
    struct world_head *h = ctx;
    struct world *w = h->world;
    uint32_t conn = to.id[0] | (uint32_t)to.id[1] << 8 | (uint32_t)to.id[2] << 16;
    for (uint32_t i = 0; i < WORLD_PEERS; i++) {
        struct proc *p = &w->procs[i];
        if (p->conn != conn || p->at != h->index || !p->alive)
            continue;
        if (!p->cut)
            queue_push(&p->to_peer,
                       (struct frame_copy){.serial = h->serial, .done = results_in(h->core, frame)},
                       frame);
        return STATUS_OK;
    }
    return STATUS_NOT_FOUND;
}

static void on_foreign_term(void *ctx, uint64_t term);

static void core_start(struct world *w, struct world_head *h)
{
    struct head_core_config c;
    head_core_config_init(&c);
    c.peers.insecure = true;
    c.peers.max_peers = 32;
    c.peers.window_bytes = WORLD_CONN_BYTES;
    c.peers.head_instance = ++w->n_head_starts;
    c.cluster.tp = w->config.tp;
    c.cluster.max_replicas = w->config.n_ranks / w->config.tp + 1;
    c.cluster.elastic_tp = w->config.elastic;
    c.cluster.elastic_wait_ns = 0; /* otherwise time would have to pass beside a dead rank */
    c.max_num_batched_tokens = 64;
    c.max_num_seqs = 4;
    c.max_waiting = 8;
    c.max_requests = 16;
    c.seed = w->n_head_starts;
    h->serial = w->n_head_starts;
    struct head_io io = {.ctx = h, .send = head_send};
    if (has_two_heads(w))
        io.on_foreign_term = on_foreign_term;
    h->core = head_core_new(&c, &io, w->now_ns);
}

/* ---- the lease ---- */

/* Handles the term of a lease. A head that did not run may receive the term late. */
static void take_term(struct world *w, struct world_head *h)
{
    uint64_t bit = 1ull << h->lease.term % 64;
    if ((w->given & bit) && !w->was_emptied)
        violate(w, "head %u serves with term %llu, which was given before", h->index,
                (unsigned long long)h->lease.term);
    w->given |= bit;
    head_core_set_term(h->core, h->lease.term, w->now_ns);
}

static void serve(struct world *w, struct world_head *h)
{
    if (w->given != 0 && !w->was_harmed)
        violate(w, "the lease moved, and no head had come to harm");
    if (w->given >> h->lease.term % 64 != 0 && !w->was_emptied)
        violate(w, "head %u begins with term %llu, and there was a higher one", h->index,
                (unsigned long long)h->lease.term);
    take_term(w, h);
    head_core_forget_scale(h->core);
    h->serves = true;
}

static void obey(struct world *w, struct world_head *h, enum lease_order order)
{
    switch (order) {
    case LEASE_SERVE:
        serve(w, h);
        break;
    case LEASE_RAISE:
        take_term(w, h);
        break;
    case LEASE_STEP_DOWN:
        if (!w->was_harmed)
            violate(w, "head %u steps down, and no head had come to harm", h->index);
        head_kill(w, h->index);
        break;
    case LEASE_STAY:
        break;
    }
}

/* Asks the store. An answer that orders nothing is handled at once. */
static void ask(struct world *w, struct world_head *h)
{
    if (h->stage != QUESTION_NONE)
        return;
    enum lease_question q = lease_next(&h->lease, w->now_ns);
    if (q == LEASE_NOTHING)
        return;
    h->question = (struct store_question){.what = q,
                                          .who = (int)h->index,
                                          .wanted = lease_wanted_term(&h->lease),
                                          .known = h->lease.store_term,
                                          .number = ++h->n_asked};
    struct lease lease = h->lease;
    struct store_model store = w->store;
    struct lease_answer a = store_model_execute(&store, &h->question);
    if (lease_on_answer(&lease, &a, w->now_ns) != LEASE_STAY) {
        h->stage = QUESTION_ASKED;
        return;
    }
    h->lease = lease;
    w->store = store;
}

static void on_foreign_term(void *ctx, uint64_t term)
{
    struct world_head *h = ctx;
    lease_see_term(&h->lease, term, h->world->now_ns);
    ask(h->world, h);
}

void head_execute_question(struct world *w, uint32_t i)
{
    struct world_head *h = &w->heads[i];
    h->answer = store_model_execute(&w->store, &h->question);
    h->stage = QUESTION_ANSWERED;
}

void head_hear_answer(struct world *w, uint32_t i)
{
    struct world_head *h = &w->heads[i];
    h->stage = QUESTION_NONE;
    obey(w, h, lease_on_answer(&h->lease, &h->answer, w->now_ns));
}

/* Cuts a head off from the store. Its question is given up, but the store may still execute it. */
static void lose_store(struct world *w, struct world_head *h)
{
    h->stage = QUESTION_NONE;
    lease_on_store(&h->lease, false, w->now_ns);
}

void store_cut(struct world *w, uint32_t i)
{
    w->was_harmed = true;
    lose_store(w, &w->heads[i]);
    w->heads[i].cut_until_ns = w->now_ns + WORLD_CUT_NS;
}

void store_freeze(struct world *w)
{
    store_model_freeze(&w->store);
    for (uint32_t i = 0; i < WORLD_HEADS; i++) {
        struct world_head *h = &w->heads[i];
        if (h->stage == QUESTION_ASKED)
            (void)store_model_execute(&w->store, &h->question);
        if (!h->core || !h->lease.is_up)
            continue;
        lose_store(w, h);
        lease_on_store(&h->lease, true, w->now_ns);
    }
}

/* ---- life ---- */

void head_start(struct world *w, uint32_t i)
{
    struct world_head *h = &w->heads[i];
    uint64_t cut_until_ns = h->cut_until_ns;
    *h = (struct world_head){.world = w, .index = i, .cut_until_ns = cut_until_ns};
    core_start(w, h);
    if (has_two_heads(w)) {
        lease_init(&h->lease, WORLD_TTL_NS);
        lease_on_store(&h->lease, !is_stopped(w, cut_until_ns), w->now_ns);
        return;
    }
    h->serves = true;
    /* the peers' sockets reconnect by themselves, with the same session and new routing ids */
    for (uint32_t k = 0; k < w->config.n_ranks; k++)
        w->procs[k].conn = ++w->n_conns;
}

/* Kills a head. With two heads, the peers' connections break. Frames that were sent before may
 * still arrive. */
void head_kill(struct world *w, uint32_t i)
{
    struct world_head *h = &w->heads[i];
    head_core_free(h->core);
    h->core = NULL;
    h->serves = false;
    h->stage = QUESTION_NONE;
    store_model_die(&w->store, (int)i);
    for (uint32_t k = 0; k < WORLD_PEERS; k++) {
        struct proc *p = &w->procs[k];
        if (p->stale_at == i)
            queue_clear(&p->stale);
        if (p->at != i || p->conn == 0)
            continue;
        queue_clear(&p->to_head);
        p->broken = (has_two_heads(w) || k == WORLD_GATEWAY) && p->alive;
        if (!has_two_heads(w))
            queue_clear(&p->to_peer);
    }
}

bool head_hears(const struct world *w, uint32_t i)
{
    const struct world_head *h = &w->heads[i];
    return h->core && h->serves && !is_stopped(w, h->stopped_until_ns);
}

void head_receive(struct world *w, uint32_t i, uint32_t conn, struct frame_copy c)
{
    struct world_head *h = &w->heads[i];
    head_core_on_frame(h->core, address(conn), ROLE_NONE, "", (struct str){c.ptr, c.len},
                       w->now_ns);
    head_core_turn(h->core, w->now_ns);
    mem_free(c.ptr);
}

void heads_tick(struct world *w)
{
    if (has_two_heads(w))
        store_model_tick(&w->store);
    for (uint32_t i = 0; i < w->config.n_heads; i++) {
        struct world_head *h = &w->heads[i];
        if (!h->core || is_stopped(w, h->stopped_until_ns))
            continue;
        head_core_tick(h->core, w->now_ns);
        if (!has_two_heads(w))
            continue;
        if (!h->lease.is_up && !is_stopped(w, h->cut_until_ns))
            lease_on_store(&h->lease, true, w->now_ns);
        ask(w, h);
    }
}

/* ---- properties ---- */

/* Returns whether one head serves all replicas and the other head waits. */
bool heads_are_well(const struct world *w)
{
    uint32_t n_serve = 0;
    for (uint32_t i = 0; i < w->config.n_heads; i++) {
        const struct world_head *h = &w->heads[i];
        if (!h->core)
            return false;
        n_serve += h->serves;
        if (h->serves && cluster_count_replicas(&h->core->cluster, REPLICA_READY) !=
                             w->config.n_ranks / w->config.tp)
            return false;
    }
    return n_serve == 1;
}

void heads_check(struct world *w)
{
    struct error err = {0};
    for (uint32_t i = 0; i < w->config.n_heads; i++) {
        const struct world_head *h = &w->heads[i];
        if (h->core && !head_core_check(h->core, &err))
            violate(w, "head %u: %s", i, err.text);
        if (has_two_heads(w) && h->core && h->serves != (h->lease.state == LEASE_SERVING))
            violate(w, "head %u serves without the lease", i);
        if (h->core && !h->serves && h->core->cluster.n_workers > 0)
            violate(w, "head %u has workers and does not serve", i);
    }
}

bool heads_know_term(const struct world *w, uint64_t term)
{
    bool known = has_two_heads(w) && w->store.term >= term;
    for (uint32_t i = 0; i < w->config.n_heads; i++)
        known = known || (w->heads[i].core && w->heads[i].core->cluster.term >= term);
    return known;
}
