/* Runs the clock. When no other action is possible, the clock advances to the next event.
 * Heartbeats and the store's questions are not explored: they are delivered at once, between
 * other actions. */
#include "common/base/mem.h"
#include "head/state/head_core.h"
#include "tests/model/world_internal.h"

#define BEAT_NS   (250 * NS_PER_MS)
#define STABLE_NS (70 * NS_PER_S) /* a time that is longer than every time-out */

static bool is_heartbeat(const struct frame_copy *c)
{
    struct frame_header h;
    return frame_parse_header((struct str){c->ptr, c->len}, &h, NULL) == STATUS_OK &&
           h.type == MSG_HEARTBEAT;
}

static bool anything_to_do(const struct world *w)
{
    struct action list[WORLD_ACTIONS_MAX];
    uint32_t n = 0;
    add_progress_to(w, list, &n); /* an action of the clock itself does not count */
    return n > 0;
}

static void peers_beat(struct world *w)
{
    for (uint32_t i = 0; i < w->config.n_ranks && !anything_to_do(w); i++) {
        struct proc *p = &w->procs[i];
        if (p->state != PROC_OPEN || w->now_ns - p->beat_ns < BEAT_NS ||
            is_stopped(w, p->stopped_until_ns))
            continue;
        p->beat_ns = w->now_ns;
        proc_beat(w, i);
        if (p->to_head.n > 0 && head_hears(w, p->at))
            head_receive(w, p->at, p->conn, queue_pop(&p->to_head));
    }
}

static void take_heartbeats(struct world *w)
{
    for (uint32_t i = 0; i < WORLD_PEERS; i++) {
        struct proc *p = &w->procs[i];
        while (p->alive && !is_stopped(w, p->stopped_until_ns) && p->to_peer.n > 0 &&
               is_heartbeat(&p->to_peer.at[0]))
            deliver_to_peer(w, i);
        while (p->to_head.n > 0 && head_hears(w, p->at) && is_heartbeat(&p->to_head.at[0]))
            head_receive(w, p->at, p->conn, queue_pop(&p->to_head));
    }
}

static void check_whole(struct world *w, const struct head_core *core)
{
    for (uint32_t i = 0; core && i < core->n_live; i++) {
        if (core->engine_slots[core->live[i]].replica->tp < w->config.tp)
            violate(w, "nothing happens any more, and a group is smaller than it could be");
    }
}

static void check_stable(struct world *w)
{
    if (!heads_are_well(w))
        violate(w, "nothing happens any more, and %s",
                has_two_heads(w) ? "not one head serves every group" : "no group is ready");
    for (uint32_t i = 0; i < w->config.n_heads; i++)
        check_whole(w, w->heads[i].core);
    for (uint32_t i = 0; i < w->config.n_requests; i++) {
        if (w->requests[i].n_ends != 1)
            violate(w, "nothing happens any more, and request %u has %u tokens and no end", i,
                    w->requests[i].stream.n_received);
    }
}

/* Returns true when the heads serve and every request has ended. world_recovery_ns needs the
 * last time at which this was false: a recovery must also end in bounded time. */
static bool is_served(const struct world *w)
{
    bool served = heads_are_well(w);
    for (uint32_t i = 0; i < w->config.n_requests; i++)
        served = served && w->requests[i].n_ends > 0;
    return served;
}

uint64_t world_recovery_ns(const struct world *w)
{
    return w->unserved_ns > w->fault_ns ? w->unserved_ns - w->fault_ns : 0;
}

void pass_time(struct world *w)
{
    uint64_t until = w->now_ns + STABLE_NS;
    while (w->now_ns < until && !w->violation[0]) {
        w->now_ns += WORLD_TICK_NS;
        if (!is_served(w))
            w->unserved_ns = w->now_ns;
        heads_tick(w);
        take_heartbeats(w);
        peers_beat(w);
        for (uint32_t i = 0; i < w->config.n_ranks; i++)
            proc_tick(w, i);
        gateway_tick(w);
        take_heartbeats(w);
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
