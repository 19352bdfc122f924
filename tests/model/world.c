/* Actions and time. The properties, checked after every action:
 *   no two epochs execute at once, steps of an epoch are contiguous and the same on every rank, and
 *   each plan is legal (world_peers.c, sim_rank.c);
 *   what a client has is a prefix of what it must get, in order, with exactly one end;
 *   the head's own invariants (head_core_check), and nobody is refused;
 * and in every state from which nothing but faults can follow: the group is ready and every request
 * has its end, so formation ends and nothing is lost. */
#include "tests/model/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/core_internal.h"
#include "proto/null_tokens.h"
#include "tests/model/world_internal.h"

#define SILENT_NS (1500 * NS_PER_MS)
#define BEAT_NS   (250 * NS_PER_MS)
#define TICK_NS   (HEAD_TICK_MS * NS_PER_MS)
#define STABLE_NS (70 * NS_PER_S) /* longer than every time-out there is */

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

void queue_push(struct frame_queue *q, struct str frame, uint64_t done)
{
    if (q->n == FRAMES_MAX)
        return; /* a runaway shows up as a lost frame and then as a broken property */
    struct frame_copy *c = &q->at[q->n++];
    c->ptr = mem_alloc(frame.len);
    c->len = (uint32_t)frame.len;
    c->done = done;
    memcpy(c->ptr, frame.ptr, frame.len);
}

static struct frame_copy queue_pop(struct frame_queue *q)
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

/* ---- the head ---- */

static struct bus_peer address(uint32_t conn)
{
    return (struct bus_peer){.n = 4,
                             .id = {(uint8_t)conn, (uint8_t)(conn >> 8), (uint8_t)(conn >> 16), 1}};
}

static uint64_t results_in(const struct world *w)
{
    uint64_t n = 0;
    for (uint32_t i = 0; w->core && i < w->core->config.cluster.max_groups; i++)
        n = w->core->lanes[i].scheduler ? w->core->lanes[i].last_result : n;
    return n;
}

static enum status head_send(void *ctx, struct bus_peer to, struct str frame)
{
    struct world *w = ctx;
    uint32_t conn = to.id[0] | (uint32_t)to.id[1] << 8 | (uint32_t)to.id[2] << 16;
    for (uint32_t i = 0; i < WORLD_PEERS; i++) {
        struct proc *p = &w->procs[i];
        if (p->conn != conn || !p->alive)
            continue;
        if (!p->cut)
            queue_push(&p->to_peer, frame, results_in(w));
        return STATUS_OK;
    }
    return STATUS_NOT_FOUND;
}

static void head_start(struct world *w)
{
    struct head_core_config c;
    head_core_config_init(&c);
    c.peers.insecure = true;
    c.peers.max_peers = 8;
    c.peers.window_bytes = 1u << 20;
    c.peers.head_instance = ++w->n_head_starts;
    c.cluster.tp = WORLD_RANKS;
    c.cluster.max_groups = 2;
    c.max_num_batched_tokens = 64;
    c.max_num_seqs = 4;
    c.max_waiting = 8;
    c.max_requests = 16;
    c.seed = w->n_head_starts;
    struct head_io io = {.ctx = w, .send = head_send};
    w->core = head_core_new(&c, &io, w->now_ns);
    /* the peers' sockets connect again by themselves: same session as before, new routing ids */
    for (uint32_t i = 0; i < WORLD_PEERS; i++)
        w->procs[i].conn = ++w->n_conns;
}

static void head_kill(struct world *w)
{
    head_core_free(w->core);
    w->core = NULL;
    for (uint32_t i = 0; i < WORLD_PEERS; i++) {
        queue_clear(&w->procs[i].to_head);
        queue_clear(&w->procs[i].to_peer);
        queue_clear(&w->procs[i].stale);
    }
}

static void check_head(struct world *w)
{
    struct error err = {0};
    if (w->core && !head_core_check(w->core, &err))
        violate(w, "head: %s", err.text);
}

static void deliver_to_head(struct world *w, uint32_t conn, struct frame_copy c)
{
    if (w->core) {
        head_core_on_frame(w->core, address(conn), ROLE_NONE, "", (struct str){c.ptr, c.len},
                           w->now_ns);
        head_core_turn(w->core, w->now_ns);
    }
    mem_free(c.ptr);
}

static void deliver_to_peer(struct world *w, uint32_t who)
{
    struct frame_copy c = queue_pop(&w->procs[who].to_peer);
    w->arriving_done = c.done;
    proc_receive(w, who, (struct str){c.ptr, c.len});
    mem_free(c.ptr);
}

/* ---- life ---- */

struct world *world_new(const struct world_config *c)
{
    struct world *w = mem_zalloc(sizeof *w);
    w->config = *c;
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
    head_start(w);
    for (uint32_t i = 0; i < WORLD_PEERS; i++)
        proc_start(w, i);
    return w;
}

void world_free(struct world *w)
{
    for (uint32_t i = 0; i < WORLD_PEERS; i++)
        proc_kill(w, i);
    head_core_free(w->core);
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

/* ---- what can happen ---- */

struct action_list {
    struct action *at;
    uint32_t n;
};

static void add(struct action_list *l, bool possible, enum action_kind kind, uint32_t who)
{
    if (possible && l->n < WORLD_ACTIONS_MAX)
        l->at[l->n++] = (struct action){(uint8_t)kind, (uint8_t)who};
}

static void add_progress(const struct world *w, struct action_list *l)
{
    for (uint32_t i = 0; i < WORLD_PEERS; i++) {
        const struct proc *p = &w->procs[i];
        add(l, w->core && p->to_head.n > 0, ACT_TO_HEAD, i);
        add(l, w->core && p->stale.n > 0, ACT_STALE, i);
        add(l, p->alive && p->to_peer.n > 0, ACT_TO_PEER, i);
        add(l, !p->alive, ACT_RESTART, i);
        if (i >= WORLD_RANKS || !p->alive)
            continue;
        add(l, rank_can_join(w, i), ACT_JOINED, i);
        add(l, w->ranks[i].aborting, ACT_ABORTED, i);
        add(l, w->ranks[i].n_plans > 0 && !w->ranks[i].aborting, ACT_EXECUTE, i);
    }
    add(l, !w->core, ACT_RESTART, WORLD_HEAD);
    add(l, l->n == 0 && !w->stable, ACT_TIME, 0);
}

static void add_fault(const struct world *w, struct action_list *l, bool possible,
                      enum action_kind kind, uint32_t who)
{
    if (w->config.fault_mask == 0 || (w->config.fault_mask & 1u << kind))
        add(l, possible, kind, who);
}

static void add_faults(const struct world *w, struct action_list *l)
{
    for (uint32_t i = 0; i < WORLD_PEERS; i++) {
        const struct proc *p = &w->procs[i];
        bool linked = p->alive && !p->cut && w->core;
        add_fault(w, l, p->alive && i < WORLD_RANKS, ACT_KILL, i);
        add_fault(w, l, linked, ACT_LINK_LOST, i);
        add_fault(w, l, linked, ACT_SILENCE, i);
        add_fault(w, l, linked && p->state == PROC_OPEN, ACT_HELLO_AGAIN, i);
        add_fault(w, l, linked && p->to_head.n > 0, ACT_DROP_TO_HEAD, i);
        add_fault(w, l, linked && p->to_head.n > 0, ACT_REPEAT_TO_HEAD, i);
        add_fault(w, l, linked && p->to_peer.n > 0, ACT_DROP_TO_PEER, i);
        if (i >= WORLD_RANKS || !p->alive)
            continue;
        bool ready = w->ranks[i].state.phase == RANK_READY;
        add_fault(w, l, w->ranks[i].joining, ACT_JOIN_FAILED, i);
        add_fault(w, l, ready, ACT_COMM_ERROR, i);
        add_fault(w, l, ready && w->ranks[i].n_plans > 0, ACT_GAP, i);
    }
    add_fault(w, l, w->core != NULL, ACT_KILL, WORLD_HEAD);
    add_fault(w, l, w->core != NULL, ACT_PAUSE, WORLD_HEAD);
}

uint32_t world_enabled(const struct world *w, struct action out[WORLD_ACTIONS_MAX])
{
    struct action_list l = {.at = out};
    if (w->violation[0])
        return 0;
    add_progress(w, &l);
    if (w->n_faults < w->config.n_faults)
        add_faults(w, &l);
    return l.n;
}

/* ---- time ---- */

static bool is_heartbeat(const struct frame_copy *c)
{
    struct frame_header h;
    return frame_parse_header((struct str){c->ptr, c->len}, &h, NULL) == STATUS_OK &&
           h.type == MSG_HEARTBEAT;
}

static bool anything_to_do(const struct world *w)
{
    struct action list[WORLD_ACTIONS_MAX];
    struct action_list l = {.at = list};
    struct world *quiet = (struct world *)w;
    bool was = quiet->stable;
    quiet->stable = true; /* time itself does not count */
    add_progress(w, &l);
    quiet->stable = was;
    return l.n > 0;
}

/* Heartbeats are not explored: they arrive at once, and only between other things. */
static void peers_beat(struct world *w)
{
    for (uint32_t i = 0; i < WORLD_PEERS && !anything_to_do(w); i++) {
        struct proc *p = &w->procs[i];
        if (p->state != PROC_OPEN || w->now_ns - p->beat_ns < BEAT_NS)
            continue;
        p->beat_ns = w->now_ns;
        proc_beat(w, i);
        if (p->to_head.n > 0)
            deliver_to_head(w, p->conn, queue_pop(&p->to_head));
    }
}

static void peers_time_out(struct world *w)
{
    for (uint32_t i = 0; i < WORLD_PEERS; i++) {
        struct proc *p = &w->procs[i];
        if (p->alive && w->now_ns - p->heard_ns >= SILENT_NS)
            proc_hello(w, i, true);
    }
}

static void take_heartbeats(struct world *w)
{
    for (uint32_t i = 0; i < WORLD_PEERS; i++) {
        struct proc *p = &w->procs[i];
        while (p->alive && p->to_peer.n > 0 && is_heartbeat(&p->to_peer.at[0]))
            deliver_to_peer(w, i);
    }
}

static void check_stable(struct world *w)
{
    if (!head_core_is_ready(w->core))
        violate(w, "nothing happens any more, and no group is ready");
    for (uint32_t i = 0; i < w->config.n_requests; i++) {
        if (w->requests[i].n_ends != 1)
            violate(w, "nothing happens any more, and request %u has %u tokens and no end", i,
                    w->requests[i].stream.n_received);
    }
}

/* Formation always ends is not enough: it ends in bounded time. */
static bool is_served(const struct world *w)
{
    bool served = w->core && head_core_is_ready(w->core);
    for (uint32_t i = 0; i < w->config.n_requests; i++)
        served = served && w->requests[i].n_ends > 0;
    return served;
}

uint64_t world_recovery_ns(const struct world *w)
{
    return w->unserved_ns > w->fault_ns ? w->unserved_ns - w->fault_ns : 0;
}

static void pass_time(struct world *w)
{
    uint64_t until = w->now_ns + STABLE_NS;
    while (w->now_ns < until && !w->violation[0]) {
        w->now_ns += TICK_NS;
        if (!is_served(w))
            w->unserved_ns = w->now_ns;
        head_core_tick(w->core, w->now_ns);
        take_heartbeats(w);
        peers_beat(w);
        peers_time_out(w);
        if (anything_to_do(w))
            return;
    }
    w->stable = true;
    check_stable(w);
    uint64_t limit = w->config.recovery_limit_ns;
    if (limit != 0 && world_recovery_ns(w) > limit)
        violate(w, "it took %.2f s after the last fault",
                (double)world_recovery_ns(w) / (double)NS_PER_S);
}

/* ---- what happens ---- */

static void apply_progress(struct world *w, struct action a)
{
    struct proc *p = a.who < WORLD_PEERS ? &w->procs[a.who] : NULL;
    switch (a.kind) {
    case ACT_TO_HEAD:
        deliver_to_head(w, p->conn, queue_pop(&p->to_head));
        break;
    case ACT_STALE:
        deliver_to_head(w, p->stale_conn, queue_pop(&p->stale));
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
    case ACT_RESTART:
        if (p)
            proc_start(w, a.who);
        else
            head_start(w);
        break;
    default:
        pass_time(w);
    }
}

static void repeat_first(struct world *w, struct proc *p)
{
    struct str again = {p->to_head.at[0].ptr, p->to_head.at[0].len};
    struct frame_copy copy = {mem_alloc(again.len), (uint32_t)again.len, 0};
    memcpy(copy.ptr, again.ptr, again.len);
    deliver_to_head(w, p->conn, copy);
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

/* Terms come from those who have seen them. When no rank and no head is left that has, numbers may
 * come again, and what is remembered here of the old ones no longer binds. */
static void forget_the_dead(struct world *w)
{
    uint64_t term = w->max_exec_epoch >> 32;
    bool known = w->core && w->core->cluster.term >= term;
    for (uint32_t i = 0; i < WORLD_RANKS; i++)
        known = known || (w->procs[i].alive && w->ranks[i].state.term_seen >= term);
    if (known)
        return;
    w->n_ledger = 0;
    w->max_exec_epoch = 0;
}

static void apply_fault(struct world *w, struct action a)
{
    struct proc *p = a.who < WORLD_PEERS ? &w->procs[a.who] : NULL;
    w->n_faults++;
    w->fault_ns = w->now_ns;
    w->stable = false;
    switch (a.kind) {
    case ACT_KILL:
        if (p)
            proc_kill(w, a.who);
        else
            head_kill(w);
        forget_the_dead(w);
        break;
    case ACT_LINK_LOST:
        queue_clear(&p->to_head);
        proc_hello(w, a.who, true);
        break;
    case ACT_SILENCE:
        p->cut = true;
        queue_clear(&p->to_head);
        queue_clear(&p->to_peer);
        break;
    case ACT_HELLO_AGAIN:
        proc_hello(w, a.who, false);
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
    default:
        w->now_ns += 3 * NS_PER_S;
        head_core_tick(w->core, w->now_ns);
        break;
    }
}

bool world_apply(struct world *w, struct action a)
{
    if (a.kind < ACT_FAULTS)
        apply_progress(w, a);
    else
        apply_fault(w, a);
    check_head(w);
    return !w->violation[0];
}

void action_text(struct action a, char out[48])
{
    static const char *const kinds[ACT_KIND_COUNT] = {
        "to_head",     "stale",       "to_peer",      "joined",       "aborted",
        "execute",     "restart",     "time",         "KILL",         "LINK_LOST",
        "SILENCE",     "HELLO_AGAIN", "DROP_TO_HEAD", "DROP_TO_PEER", "REPEAT_TO_HEAD",
        "JOIN_FAILED", "COMM_ERROR",  "GAP",          "PAUSE"};
    static const char *const who[] = {"rank0", "rank1", "gateway", "head"};
    snprintf(out, 48, "%s(%s)", kinds[a.kind], a.kind == ACT_TIME ? "" : who[a.who]);
}
