/* Implements the states of state/sleep_state.h.
 *
 * Orders come from the admin API. `sleep_turn` moves the state on; `sleep_tell` sends each free
 * worker the level that it should have. Workers answer Slept (`sleep_on_slept`), and say their
 * level in Hello. A held request wakes a sleeping cluster in the turn in which it arrives.
 *
 * Invariants: everything runs on the loop thread, without a clock. `cluster.asleep` is set from
 * FALLING to ASLEEP, and no replica is formed meanwhile. Only a free worker gets an order. An
 * order is lost with its session at most: Hello says the level, and the order is sent again. A
 * join wakes a worker, so waking needs no order for the workers that are placed. While `sleep.held`
 * is set, the memory of the workers may belong to another model: nothing but head_core_end_rest
 * leaves ASLEEP, and everything else that would wake the cluster asks for workers (scale_hint_ask).
 */
#include "head/core/sleep.h"

#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/str.h"
#include "head/cluster/formation.h"
#include "head/core/dispatch.h"
#include "head/request/request.h"
#include "head/state/head_core.h"
#include "head/state/requests.h"

/* TELL_NS bounds how long the head waits for workers that do not answer; CALM_NS is the time after
 * which a worker that was not placed is woken by an order, so that it is a ready spare.
 * WAKE_RETRY_NS is the delay before a worker that could not wake gets that order again. */
#define TELL_NS       (60 * NS_PER_S)
#define CALM_NS       (200 * NS_PER_MS)
#define WAKE_RETRY_NS (5 * NS_PER_S)

const char *sleep_state_name(enum sleep_state s)
{
    static const char *const names[SLEEP_STATE_COUNT] = {"awake", "falling asleep",
                                                         "falling asleep", "asleep", "waking"};
    return (unsigned)s < SLEEP_STATE_COUNT ? names[s] : "?";
}

static void enter(struct head_core *h, enum sleep_state next)
{
    h->sleep.state = next;
    h->sleep.since_ns = h->now_ns;
    h->sleep.look = true;
    h->sleep.held = h->sleep.held && next != SLEEP_AWAKE && next != SLEEP_WAKING;
    h->cluster.asleep = next == SLEEP_FALLING || next == SLEEP_ASLEEP;
    h->cluster.place_dirty = true;
}

const struct head_sleep *head_core_sleep_state(const struct head_core *h)
{
    return &h->sleep;
}

bool sleep_places(const struct head_core *h)
{
    return h->sleep.state == SLEEP_AWAKE || h->sleep.state == SLEEP_WAKING;
}

bool sleep_is_down(const struct head_core *h)
{
    return h->cluster.asleep;
}

bool sleep_rests(const struct head_core *h)
{
    return sleep_is_down(h) || (h->sleep.state == SLEEP_WAKING &&
                                h->now_ns - h->sleep.since_ns < h->config.scale.start_ns);
}

/* ---- waking ---- */

static void wake(struct head_core *h, const char *why)
{
    events_add(&h->events, h->now_ns, LOG_INFO, "waking", "level=%d waiting=%u workers=%u by=%s",
               (int)h->sleep.level, h->n_held, h->cluster.n_workers, log_quote(why));
    h->sleep.level = SLEEP_LEVEL_AWAKE;
    h->sleep.wake_ordered = false;
    enter(h, SLEEP_WAKING);
}

static void call_off(struct head_core *h, const char *why)
{
    events_add(&h->events, h->now_ns, LOG_INFO, "sleep_called_off", "level=%d running=%u by=%s",
               (int)h->sleep.level, h->n_running, log_quote(why));
    h->sleep.level = SLEEP_LEVEL_AWAKE;
    h->sleep.n_called_off++;
    enter(h, SLEEP_AWAKE);
}

void sleep_end(struct head_core *h, const char *why)
{
    if (h->sleep.held)
        scale_hint_ask(&h->scale, h->now_ns);
    else if (h->sleep.state == SLEEP_WAITING)
        call_off(h, why);
    else if (h->sleep.state == SLEEP_FALLING)
        h->sleep.wake_ordered = true;
    else if (h->sleep.state == SLEEP_ASLEEP)
        wake(h, why);
}

void head_core_wake(struct head_core *h, const char *by, uint64_t now_ns)
{
    h->now_ns = h->cluster.now_ns = now_ns;
    sleep_end(h, by);
}

static void become_awake(struct head_core *h)
{
    h->sleep.wake_took_ns = h->now_ns - h->sleep.since_ns;
    events_add(&h->events, h->now_ns, LOG_INFO, "awake", "seconds=%.3f",
               (double)h->sleep.wake_took_ns / (double)NS_PER_S);
    h->sleep.level = SLEEP_LEVEL_AWAKE;
    enter(h, SLEEP_AWAKE);
}

/* ---- falling asleep ---- */

static void end_requests(struct head_core *h)
{
    for (struct request *r = request_table_next(h->requests, NULL); r;
         r = request_table_next(h->requests, r))
        if (r->finish == FINISH_NONE)
            requests_end(h, r, FINISH_ERROR, STATUS_CLOSED,
                         "The model was put to sleep, which ended its requests. Send the request "
                         "again to wake the model.");
}

void head_core_sleep(struct head_core *h, enum sleep_level level, bool abort, const char *by,
                     uint64_t now_ns)
{
    struct head_sleep *s = &h->sleep;
    h->now_ns = h->cluster.now_ns = now_ns;
    if (s->state == SLEEP_WAKING && h->n_live > 0)
        become_awake(h); /* requests may already run */
    s->wake_ordered = false;
    if (s->state != SLEEP_AWAKE && level <= s->level && !abort)
        return;
    events_add(&h->events, now_ns, LOG_INFO, "falling_asleep", "level=%d abort=%s running=%u by=%s",
               (int)level, abort ? "yes" : "no", h->n_running, log_quote(by));
    s->level = level > s->level ? level : s->level;
    if (abort)
        end_requests(h);
    if (s->state == SLEEP_AWAKE)
        enter(h, SLEEP_WAITING);
    else if (s->state == SLEEP_ASLEEP || s->state == SLEEP_WAKING)
        enter(h, SLEEP_FALLING);
    s->look = true;
}

static bool is_idle(const struct head_core *h)
{
    for (uint32_t i = 0; i < h->n_live; i++) {
        const struct engine_slot *l = &h->engine_slots[h->live[i]];
        struct scheduler_stats x;
        scheduler_get_stats(l->scheduler, &x);
        if (x.waiting > 0 || !dispatch_is_idle((void *)h, l->replica))
            return false;
    }
    return true;
}

/* Dissolves every replica, also one that is forming or being adopted. Returns true when none is
 * left. */
static bool dissolve_all(struct head_core *h)
{
    bool all = true;
    for (uint32_t i = 0; i < h->config.cluster.max_replicas; i++) {
        struct replica *g = h->cluster.replicas[i];
        if (!g || g->state == REPLICA_WAITING)
            continue;
        g->draining = true; /* the end is intended */
        replica_dissolve(&h->cluster, g, "the model goes to sleep", false);
        all = all && g->state == REPLICA_WAITING;
    }
    return all;
}

static bool has_slept(const struct head_core *h, const struct worker *w)
{
    if (!w->peer->open || w->peer->suspect || w->draining)
        return true;
    if (w->sleep_refused && w->sleep_told == h->sleep.level)
        return true;
    return worker_is_free(w) && w->sleep_level >= h->sleep.level;
}

static void try_to_sleep(struct head_core *h)
{
    bool slept = dissolve_all(h), late = h->now_ns - h->sleep.since_ns >= TELL_NS;
    h->sleep.look = true; /* a worker may just have become free */
    for (const struct worker *w = h->cluster.workers; w && slept; w = w->next)
        slept = has_slept(h, w);
    if (!slept && !late)
        return;
    events_add(&h->events, h->now_ns, slept ? LOG_INFO : LOG_WARN, "asleep",
               "level=%d workers=%u seconds=%.3f", (int)h->sleep.level, h->cluster.n_workers,
               (double)(h->now_ns - h->sleep.since_ns) / (double)NS_PER_S);
    h->sleep.n_falls++;
    enter(h, SLEEP_ASLEEP);
}

void sleep_turn(struct head_core *h)
{
    struct head_sleep *s = &h->sleep;
    if (s->state == SLEEP_AWAKE)
        return;
    if (s->state == SLEEP_WAITING && is_idle(h))
        enter(h, SLEEP_FALLING);
    else if (s->state == SLEEP_WAITING && h->now_ns - s->since_ns >= h->config.sleep_wait_ns)
        call_off(h, "requests that have not ended in time");
    if (s->state == SLEEP_FALLING)
        try_to_sleep(h);
    if (s->state == SLEEP_ASLEEP && !s->held && (h->n_held > 0 || s->wake_ordered))
        wake(h, h->n_held > 0 ? "a request" : "an order");
    if ((s->state == SLEEP_WAKING || s->state == SLEEP_ASLEEP) && h->n_live > 0)
        become_awake(h); /* an adopted replica ends the sleep too */
}

/* ---- orders to workers ---- */

/* Returns true when the worker may get an order to wake: it was not placed, although it was free
 * when the others were. */
static bool is_left(const struct head_core *h)
{
    return h->sleep.state == SLEEP_AWAKE || h->sleep.state == SLEEP_WAITING ||
           h->now_ns - h->sleep.since_ns >= CALM_NS;
}

static void tell(struct head_core *h, struct worker *w)
{
    enum sleep_level level = sleep_is_down(h) ? h->sleep.level : SLEEP_LEVEL_AWAKE;
    if (!worker_is_free(w) || w->sleep_told == level || w->draining)
        return;
    if (level == SLEEP_LEVEL_AWAKE && (!is_left(h) || h->now_ns < w->wake_at_ns))
        return;
    struct msg m = {.type = MSG_SLEEP, .sleep = {level}};
    enum status s = peers_send(&h->peers, w->peer, &m);
    if (s != STATUS_OK && s != STATUS_UNSUPPORTED)
        return; /* the next tick tries again */
    w->sleep_told = level;
    w->sleep_refused = s == STATUS_UNSUPPORTED; /* a worker of an older version */
}

void sleep_tell(struct head_core *h)
{
    if (!h->sleep.look)
        return;
    h->sleep.look = false;
    for (struct worker *w = h->cluster.workers; w; w = w->next)
        tell(h, w);
}

void sleep_tick(struct head_core *h)
{
    h->sleep.look = true; /* a worker may have become free, or time may have passed */
}

void sleep_on_slept(struct head_core *h, struct worker *w, const struct msg_slept *m)
{
    char why[160];
    if (w->sleep_told != SLEEP_LEVEL_COUNT) { /* otherwise the answer came before a join */
        w->sleep_level = m->level;
        w->sleep_refused = m->status != STATUS_OK;
    }
    if (w->sleep_told == SLEEP_LEVEL_AWAKE &&
        (w->sleep_refused || w->sleep_level != SLEEP_LEVEL_AWAKE)) {
        w->sleep_told = SLEEP_LEVEL_COUNT; /* the order must be repeated */
        w->wake_at_ns = h->now_ns + (w->sleep_refused ? WAKE_RETRY_NS : 0);
    }
    h->sleep.look = true;
    h->cluster.adapters.stirred = true; /* orders that a sleeping worker does not get */
    if (m->status == STATUS_OK)
        return;
    str_copy(why, sizeof why, m->text);
    events_add(&h->events, h->now_ns, LOG_WARN, "worker_not_asleep",
               "node=%s instance=%016llx level=%d status=%s reason=%s", log_quote(w->peer->node),
               (unsigned long long)w->peer->instance, (int)m->level, status_name(m->status),
               log_quote(why));
}

/* Continues the sleep that an earlier head ordered: all workers that are connected sleep, and this
 * head has formed no replica yet. */
static bool is_inherited(const struct head_core *h)
{
    const struct cluster *c = &h->cluster;
    if (h->sleep.state != SLEEP_AWAKE || c->n_replicas > 0 || c->n_formations > 0 ||
        c->n_adoptions > 0 || h->sleep.n_falls > 0)
        return false;
    for (const struct worker *w = c->workers; w; w = w->next)
        if (w->sleep_level == SLEEP_LEVEL_AWAKE || !worker_is_free(w))
            return false;
    return true;
}

void sleep_on_hello(struct head_core *h, const struct worker *w)
{
    h->sleep.look = true;
    if (is_inherited(h)) {
        h->sleep.level = w->sleep_level;
        h->sleep.held = h->config.wake_by_order;
        enter(h, SLEEP_ASLEEP);
        events_add(&h->events, h->now_ns, LOG_INFO, "asleep",
                   "level=%d workers=%u inherited=yes held=%s", (int)h->sleep.level,
                   h->cluster.n_workers, h->sleep.held ? "yes" : "no");
    } else if (h->sleep.state == SLEEP_ASLEEP && w->held_epoch != 0) {
        wake(h, "a worker whose replica serves");
    }
}
