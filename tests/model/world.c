/* Performs the actions of a world. Every action is followed by a check of these properties:
 *   - no two epochs of a replica execute at once (with two heads: none on the same rank);
 *   - a rank's epochs only rise, and so do its terms;
 *   - the steps of an epoch are contiguous, and every rank runs the same ones, once each;
 *   - each rank slot has one rank, and each plan is legal (world_ranks.c, sim_rank.c);
 *   - a client's tokens are a prefix of the expected ones, in order, with exactly one end;
 *   - the gateway takes tokens of the head that welcomed it, and goes to none of an older term
 *     (world_gateway.c);
 *   - the heads' own invariants hold (head_core_check: no rank in two replicas), none serves
 *     without a lease, and only a head that verifies the lease's owner refuses a peer
 *     (world_heads.c);
 *   - in every state in which only faults can follow (world_time.c), one head serves, every replica
 *     is ready and every request has its end. So formation ends and nothing is lost. */
#include "tests/model/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "head/state/head_core.h"
#include "proto/null_tokens.h"
#include "tests/model/world_internal.h"

bool violate(struct world *w, const char *fmt, ...)
{
    if (!w->violation[0]) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(w->violation, sizeof w->violation, fmt, ap);
        va_end(ap);
    }
    return false;
}

/* ---- queues ---- */

void queue_push(struct frame_queue *q, struct frame_copy about, struct str frame)
{
    if (q->n == FRAMES_MAX)
        return; /* endless sending shows as a lost frame and then as a violated property */
    struct frame_copy *c = &q->at[q->n++];
    *c = about;
    c->ptr = mem_alloc(frame.len);
    c->len = (uint32_t)frame.len;
    memcpy(c->ptr, frame.ptr, frame.len);
}

struct frame_copy queue_pop(struct frame_queue *q)
{
    struct frame_copy c = q->at[0];
    memmove(q->at, q->at + 1, --q->n * sizeof q->at[0]);
    return c;
}

void queue_drop_first(struct frame_queue *q)
{
    struct frame_copy c = queue_pop(q);
    mem_free(c.ptr);
}

void queue_clear(struct frame_queue *q)
{
    while (q->n > 0)
        mem_free(q->at[--q->n].ptr);
}

void deliver_to_peer(struct world *w, uint32_t who)
{
    struct frame_copy c = queue_pop(&w->procs[who].to_peer);
    w->arriving = c;
    if (who == WORLD_GATEWAY)
        gateway_receive(w, (struct str){c.ptr, c.len});
    else
        proc_receive(w, who, (struct str){c.ptr, c.len});
    mem_free(c.ptr);
}

/* ---- life ---- */

struct world *world_new(const struct world_config *c)
{
    struct world *w = mem_zalloc(sizeof *w);
    w->config = *c;
    w->config.n_heads = c->n_heads ? c->n_heads : 1;
    w->config.n_ranks = c->n_ranks ? c->n_ranks : 2;
    w->config.tp = c->tp ? c->tp : 2;
    w->now_ns = NS_PER_S;
    arena_init(&w->decode, 0);
    arena_init(&w->encode, 0);
    strbuf_init(&w->frame, 0);
    for (uint32_t i = 0; i < c->n_requests; i++) {
        struct client_request *r = &w->requests[i];
        stream_init(&r->stream);
        struct null_hash h;
        null_hash_init(&h, i, 0, 0, 1);
        for (uint32_t k = 0; k < 3; k++) {
            r->prompt[k] = 10 * (i + 1) + k;
            null_hash_push(&h, r->prompt[k]);
        }
        for (uint32_t k = 0; k < c->n_tokens; k++) {
            r->want[k] = null_hash_token(&h, 259);
            null_hash_push(&h, r->want[k]);
        }
    }
    store_model_init(&w->store, (uint32_t)(WORLD_TTL_NS / WORLD_TICK_NS), HEAD_TICK_MS);
    for (uint32_t i = 0; i < w->config.n_heads; i++)
        head_start(w, i);
    for (uint32_t i = 0; i < WORLD_PEERS; i++) {
        if (is_peer(w, i))
            proc_start(w, i);
    }
    return w;
}

void world_free(struct world *w)
{
    for (uint32_t i = 0; i < WORLD_PEERS; i++)
        proc_kill(w, i);
    for (uint32_t i = 0; i < WORLD_HEADS; i++)
        head_core_free(w->heads[i].core);
    engine_client_fini(&w->engine);
    arena_fini(&w->decode);
    arena_fini(&w->encode);
    strbuf_fini(&w->frame);
    mem_free(w);
}

const char *world_violation(const struct world *w)
{
    return w->violation;
}

bool world_is_stable(const struct world *w)
{
    return w->stable;
}

/* ---- possible actions ---- */

struct action_list {
    struct action *at;
    uint32_t n;
};

static void add(struct action_list *l, bool possible, enum action_kind kind, uint32_t who)
{
    if (possible && l->n < WORLD_ACTIONS_MAX)
        l->at[l->n++] = (struct action){(uint8_t)kind, (uint8_t)who};
}

static void add_progress_of_heads(const struct world *w, struct action_list *l)
{
    for (uint32_t i = 0; i < w->config.n_heads; i++) {
        const struct world_head *h = &w->heads[i];
        bool runs = !is_stopped(w, h->stopped_until_ns);
        add(l, h->stage == QUESTION_ASKED, ACT_STORE, WORLD_HEAD + i);
        add(l, runs && h->stage == QUESTION_ANSWERED, ACT_ANSWER, WORLD_HEAD + i);
        add(l, !h->core, ACT_RESTART, WORLD_HEAD + i);
    }
}

static void add_progress(const struct world *w, struct action_list *l)
{
    for (uint32_t i = 0; i < WORLD_PEERS; i++) {
        const struct proc *p = &w->procs[i];
        bool runs = p->alive && !is_stopped(w, p->stopped_until_ns);
        if (!is_peer(w, i))
            continue;
        add(l, head_hears(w, p->at) && p->to_head.n > 0, ACT_TO_HEAD, i);
        add(l, head_hears(w, p->stale_at) && p->stale.n > 0, ACT_STALE, i);
        add(l, runs && p->to_peer.n > 0, ACT_TO_PEER, i);
        add(l, runs && p->broken, ACT_NOTICE, i);
        add(l, !p->alive, ACT_RESTART, i);
        if (i >= WORLD_RANKS || !runs)
            continue;
        add(l, rank_can_join(w, i), ACT_JOINED, i);
        add(l, w->ranks[i].aborting, ACT_ABORTED, i);
        add(l, rank_can_execute(w, i), ACT_EXECUTE, i);
    }
    add_progress_of_heads(w, l);
}

void add_progress_to(const struct world *w, struct action *at, uint32_t *n)
{
    struct action_list l = {.at = at, .n = *n};
    add_progress(w, &l);
    *n = l.n;
}

static void add_fault(const struct world *w, struct action_list *l, bool possible,
                      enum action_kind kind, uint32_t who)
{
    if (w->config.fault_mask == 0 || (w->config.fault_mask & 1u << kind))
        add(l, possible, kind, who);
}

static void add_faults_of_peers(const struct world *w, struct action_list *l)
{
    for (uint32_t i = 0; i < WORLD_PEERS; i++) {
        const struct proc *p = &w->procs[i];
        bool runs = p->alive && !is_stopped(w, p->stopped_until_ns);
        bool linked = runs && !p->cut && !p->broken && p->conn != 0 && w->heads[p->at].core;
        if (!is_peer(w, i))
            continue;
        add_fault(w, l, p->alive && i < WORLD_RANKS, ACT_KILL, i);
        add_fault(w, l, linked, ACT_LINK_LOST, i);
        add_fault(w, l, linked, ACT_SILENCE, i);
        add_fault(w, l, linked && p->state == PROC_OPEN, ACT_HELLO_AGAIN, i);
        add_fault(w, l, linked && p->to_head.n > 0, ACT_DROP_TO_HEAD, i);
        add_fault(w, l, linked && p->to_head.n > 0 && head_hears(w, p->at), ACT_REPEAT_TO_HEAD, i);
        add_fault(w, l, linked && p->to_peer.n > 0, ACT_DROP_TO_PEER, i);
        add_fault(w, l, has_two_heads(w) && runs, ACT_STOP, i);
        if (i >= WORLD_RANKS || !runs)
            continue;
        bool ready = w->ranks[i].state.phase == RANK_READY;
        add_fault(w, l, w->ranks[i].joining, ACT_JOIN_FAILED, i);
        add_fault(w, l, ready, ACT_COMM_ERROR, i);
        add_fault(w, l, ready && w->ranks[i].n_plans > 0, ACT_GAP, i);
    }
}

static void add_faults(const struct world *w, struct action_list *l)
{
    bool two = has_two_heads(w);
    add_faults_of_peers(w, l);
    for (uint32_t i = 0; i < w->config.n_heads; i++) {
        const struct world_head *h = &w->heads[i];
        bool runs = h->core && !is_stopped(w, h->stopped_until_ns);
        add_fault(w, l, h->core, ACT_KILL, WORLD_HEAD + i);
        add_fault(w, l, !two && h->core, ACT_PAUSE, WORLD_HEAD + i);
        add_fault(w, l, two && runs, ACT_STOP, WORLD_HEAD + i);
        add_fault(w, l, two && h->core && h->lease.is_up, ACT_STORE_CUT, WORLD_HEAD + i);
    }
    add_fault(w, l, two, ACT_STORE_EMPTY, WORLD_STORE);
    add_fault(w, l, two, ACT_STORE_FREEZE, WORLD_STORE);
}

uint32_t world_enabled(const struct world *w, struct action out[WORLD_ACTIONS_MAX])
{
    struct action_list l = {.at = out};
    if (w->violation[0])
        return 0;
    add_progress(w, &l);
    add(&l, l.n == 0 && !w->stable, ACT_TIME, 0);
    if (w->n_faults < w->config.n_faults)
        add_faults(w, &l);
    return l.n;
}

/* ---- performing actions ---- */

static void apply_progress(struct world *w, struct action a)
{
    struct proc *p = a.who < WORLD_PEERS ? &w->procs[a.who] : NULL;
    switch (a.kind) {
    case ACT_TO_HEAD:
        head_receive(w, p->at, p->conn, queue_pop(&p->to_head));
        break;
    case ACT_STALE:
        head_receive(w, p->stale_at, p->stale_conn, queue_pop(&p->stale));
        break;
    case ACT_TO_PEER:
        deliver_to_peer(w, a.who);
        break;
    case ACT_JOINED:
        rank_joined(w, a.who, true);
        break;
    case ACT_ABORTED:
        rank_aborted(w, a.who);
        break;
    case ACT_EXECUTE:
        rank_execute(w, a.who);
        break;
    case ACT_NOTICE:
        if (a.who == WORLD_GATEWAY)
            gateway_on_broken(w);
        else
            proc_lost(w, a.who);
        break;
    case ACT_STORE:
        head_execute_question(w, a.who - WORLD_HEAD);
        break;
    case ACT_ANSWER:
        head_hear_answer(w, a.who - WORLD_HEAD);
        break;
    case ACT_RESTART:
        if (p)
            proc_start(w, a.who);
        else
            head_start(w, a.who - WORLD_HEAD);
        break;
    default:
        pass_time(w);
    }
}

static void repeat_first(struct world *w, struct proc *p)
{
    struct str again = {p->to_head.at[0].ptr, p->to_head.at[0].len};
    struct frame_copy copy = {.ptr = mem_alloc(again.len), .len = (uint32_t)again.len};
    memcpy(copy.ptr, again.ptr, again.len);
    head_receive(w, p->at, p->conn, copy);
}

static void comm_error(struct world *w, uint32_t who)
{
    struct rank_state *s = &w->ranks[who].state;
    struct msg m = {.type = MSG_COMM_ERROR,
                    .comm_error = {.term_epoch = s->term_epoch,
                                   .step = s->step_received,
                                   .text = STR("peer gone")}};
    proc_send(w, who, &m);
}

static void gap(struct world *w, uint32_t who)
{
    struct rank_state *s = &w->ranks[who].state;
    struct msg m = {.type = MSG_GAP,
                    .gap = {.term_epoch = s->term_epoch,
                            .last_step = s->step_executed,
                            .got_step = s->step_executed + 1,
                            .text = STR("digest differs")}};
    proc_send(w, who, &m);
}

/* Forgets numbers that no living process knows. Terms come from processes that have seen them.
 * When no rank and no head is left that has seen a term, its number may be used again, and the
 * ledger's old entries no longer count. A gateway that has seen a term reports it in its Hello,
 * which may arrive after the replica has formed. The gateway takes part in no epoch. */
static void forget_the_dead(struct world *w)
{
    uint64_t term = 0;
    for (uint32_t i = 0; i < w->n_ledger; i++)
        term = w->ledger[i].epoch >> 32 > term ? w->ledger[i].epoch >> 32 : term;
    bool known = heads_know_term(w, term);
    for (uint32_t i = 0; i < w->config.n_ranks; i++)
        known = known || (w->procs[i].alive && w->ranks[i].state.term_seen >= term);
    if (!known)
        w->n_ledger = 0;
}

static void stop(struct world *w, uint32_t who)
{
    uint64_t until_ns = w->now_ns + WORLD_STOP_NS;
    w->was_harmed |= who >= WORLD_HEAD;
    if (who >= WORLD_HEAD)
        w->heads[who - WORLD_HEAD].stopped_until_ns = until_ns;
    else
        w->procs[who].stopped_until_ns = until_ns;
    if (who < WORLD_RANKS) {
        w->ranks[who].was_stopped = true;
        w->ranks[who].n_late = 0;
    }
}

static void apply_fault(struct world *w, struct action a)
{
    struct proc *p = a.who < WORLD_PEERS ? &w->procs[a.who] : NULL;
    w->n_faults++;
    w->fault_ns = w->now_ns;
    w->stable = false;
    switch (a.kind) {
    case ACT_KILL:
        w->was_harmed |= p == NULL;
        if (p)
            proc_kill(w, a.who);
        else
            head_kill(w, a.who - WORLD_HEAD);
        forget_the_dead(w);
        break;
    case ACT_LINK_LOST:
        queue_clear(&p->to_head);
        if (a.who == WORLD_GATEWAY)
            gateway_on_broken(w);
        else
            proc_lost(w, a.who);
        break;
    case ACT_SILENCE:
        p->cut = true;
        queue_clear(&p->to_head);
        queue_clear(&p->to_peer);
        break;
    case ACT_HELLO_AGAIN:
        proc_hello(w, a.who);
        break;
    case ACT_DROP_TO_HEAD:
        queue_drop_first(&p->to_head);
        break;
    case ACT_DROP_TO_PEER:
        queue_drop_first(&p->to_peer);
        break;
    case ACT_REPEAT_TO_HEAD:
        repeat_first(w, p);
        break;
    case ACT_JOIN_FAILED:
        rank_joined(w, a.who, false);
        break;
    case ACT_COMM_ERROR:
        comm_error(w, a.who);
        break;
    case ACT_GAP:
        gap(w, a.who);
        break;
    case ACT_STOP:
        stop(w, a.who);
        break;
    case ACT_STORE_CUT:
        store_cut(w, a.who - WORLD_HEAD);
        break;
    case ACT_STORE_EMPTY:
        w->was_emptied = true;
        store_model_lose_all(&w->store);
        forget_the_dead(w);
        break;
    case ACT_STORE_FREEZE:
        store_freeze(w);
        break;
    default:
        w->now_ns += WORLD_STOP_NS;
        heads_tick(w);
        break;
    }
}

bool world_apply(struct world *w, struct action a)
{
    if (a.kind < ACT_FAULTS)
        apply_progress(w, a);
    else
        apply_fault(w, a);
    heads_check(w);
    return !w->violation[0];
}

void action_text(struct action a, char out[48])
{
    static const char *const kinds[ACT_KIND_COUNT] = {
        "to_head",      "stale",        "to_peer",        "joined",      "aborted",
        "execute",      "notice",       "store",          "answer",      "restart",
        "time",         "KILL",         "LINK_LOST",      "SILENCE",     "HELLO_AGAIN",
        "DROP_TO_HEAD", "DROP_TO_PEER", "REPEAT_TO_HEAD", "JOIN_FAILED", "COMM_ERROR",
        "GAP",          "PAUSE",        "STOP",           "STORE_CUT",   "STORE_EMPTY",
        "STORE_FREEZE"};
    static const char *const who[] = {"rank0",   "rank1", "rank2", "rank3",
                                      "gateway", "head0", "head1", "store"};
    snprintf(out, 48, "%s(%s)", kinds[a.kind], a.kind == ACT_TIME ? "" : who[a.who]);
}
