/* Chooses requests that move. All requests of a drained replica move, as fast as other replicas
 * can take them. Each request of a prefill replica moves once it has its first token. Older
 * requests move first. A move that failed is tried again later, not in each step. */
#include "head/routing/transfer_policy.h"

#include "common/base/clock.h"
#include "head/routing/grammars.h"
#include "head/routing/kv_compat.h"
#include "head/routing/route.h"
#include "head/routing/transfers.h"
#include "head/state/requests.h"

#define COPY_BASE_NS     5e6 /* fixed cost of a copy: orders, connecting, answers; ns */
#define DRAIN_RETRY_NS   (100 * NS_PER_MS)
#define ROLE_RETRY_NS    NS_PER_S
#define MAX_MOVES        4096u
#define WORTH_MOVING_IDS 8u /* with fewer tokens left, finishing in place is sooner than a move */

static bool is_stuck(const struct engine_slot *l)
{
    return l->transfer && l->transfer->state == TRANSFER_STUCK;
}

/* Returns true when blocks can be copied between the two engine slots now. */
static bool can_copy(const struct engine_slot *from, const struct engine_slot *to)
{
    if (is_stuck(from) || is_stuck(to) || transfer_way(from->replica, to->replica) != TRANSFER_WAY)
        return false;
    for (uint32_t i = 0; i < from->replica->world; i++) {
        if (!from->replica->members[i]->peer->open || !to->replica->members[i]->peer->open)
            return false;
    }
    return true;
}

/* Returns true when copying n_copied tokens to the other replica is sooner than computing
 * n_computed tokens there. */
static bool is_sooner(const struct head_core *h, const struct engine_slot *to, uint32_t n_copied,
                      uint32_t n_computed)
{
    double bytes = 0;
    struct step_speed speed = route_speed(h, to);
    for (uint32_t i = 0; i < to->replica->n_kv_groups; i++) {
        const struct kv_group *k = &to->replica->kv_groups[i];
        uint32_t n =
            k->kind == KV_WINDOW && k->window_tokens < n_copied ? k->window_tokens : n_copied;
        bytes += (double)k->bytes_per_block * ((double)n / k->block_tokens);
    }
    uint64_t n_steps = 1 + n_computed / h->config.max_num_batched_tokens;
    double compute_ns = speed.base_ns * (double)n_steps + speed.token_ns * (double)n_computed;
    return COPY_BASE_NS + bytes / h->transfers.bytes_per_s * (double)NS_PER_S < compute_ns;
}

/* Returns the number of r's tokens that are already in the other replica, because requests with
 * the same beginning copied them there. */
static uint32_t copied_before(const struct engine_slot *from, const struct engine_slot *to,
                              const struct request *r)
{
    struct request coming = *r; /* the request as it would be in the other replica */
    coming.salt = request_salt_copied(r->salt, from->replica->epoch);
    coming.chains = NULL;
    arena_init(&coming.arena, 0);
    uint32_t n = scheduler_cached_tokens(to->scheduler, &coming);
    arena_fini(&coming.arena);
    return n;
}

/* Returns true when a copy pays. Tokens that the other replica computed itself need no
 * computing, and tokens that were copied before need no copy. The latter are looked up only when
 * they decide. */
static bool is_worth_copying(const struct head_core *h, const struct engine_slot *from,
                             const struct engine_slot *to, struct request *r, uint32_t n_tokens)
{
    uint32_t n_there = scheduler_cached_tokens(to->scheduler, r);
    uint32_t n_computed = n_tokens > n_there ? n_tokens - n_there : 0;
    if (is_sooner(h, to, n_tokens, n_computed))
        return true;
    if (!is_sooner(h, to, 0, n_computed))
        return false;
    uint32_t n_before = copied_before(from, to, r);
    return is_sooner(h, to, n_tokens > n_before ? n_tokens - n_before : 0, n_computed);
}

static bool may_hand_over(const struct request *r)
{
    return request_n_generated(r) > 0 && r->ids_cap - r->n_ids >= WORTH_MOVING_IDS;
}

/* Sets the time of the request's next attempt to move. */
static void put_off(const struct head_core *h, struct request *r, bool drains)
{
    r->move_at_ns = h->now_ns + (drains ? DRAIN_RETRY_NS : ROLE_RETRY_NS);
}

/* Moves one request if possible. Returns false when it could move now, but must wait for another
 * move of blocks. */
static bool consider(struct head_core *h, struct engine_slot *from, struct request *r)
{
    bool drains = from->replica->draining;
    struct engine_slot *to = route_find_move(h, r, from, drains);
    if (!to) {
        put_off(h, r, drains);
        return true;
    }
    /* the head has requested the grammar, which will soon be ready */
    if (!grammars_may_move(h, r, to)) {
        put_off(h, r, drains);
        return true;
    }
    uint32_t n_tokens = scheduler_movable(from->scheduler, r);
    bool copies = n_tokens > 0 && can_copy(from, to);
    bool recomputes = drains;
    if (copies)
        recomputes =
            (drains && r->n_moves_failed > 0) || !is_worth_copying(h, from, to, r, n_tokens);
    if (recomputes) {
        transfer_begin_recompute(h, r, from, to);
    } else if (copies) {
        if (from->transfer || to->transfer)
            return false;
        if (!transfer_begin_copy(h, r, from, to, n_tokens))
            put_off(h, r, drains);
    } else {
        put_off(h, r, false);
    }
    return true;
}

/* Moves waiting requests away. None of their tokens is computed, so they move without blocks. */
static void send_away_waiting(struct head_core *h, struct engine_slot *from)
{
    struct request *next = scheduler_next_waiting(from->scheduler, NULL);
    for (struct request *r = next; r; r = next) {
        next = scheduler_next_waiting(from->scheduler, r);
        if (r->move_at_ns == UINT64_MAX || !scheduler_may_leave(r))
            continue;
        if (!route_find(h, r))
            return;
        requests_send_away(h, r);
    }
}

static void look_at(struct head_core *h, struct engine_slot *from)
{
    uint32_t i = 0;
    bool drains = from->replica->draining;
    if (drains)
        send_away_waiting(h, from);
    for (struct request *r; (r = scheduler_next_running(from->scheduler, &i)) != NULL;) {
        if (r->move_at_ns > h->now_ns || h->transfers.n >= MAX_MOVES || request_is_suspect(r))
            continue;
        if ((drains || may_hand_over(r)) && !consider(h, from, r))
            return; /* this request must move first; the next attempt is soon */
    }
}

void transfer_policy_look(struct head_core *h)
{
    for (uint32_t i = 0; i < h->n_live && h->n_live > 1; i++) {
        struct engine_slot *l = &h->engine_slots[h->live[i]];
        if (!l->look_due || !(l->replica->draining || l->role == REPLICA_PREFILL))
            continue;
        l->look_due = false;
        look_at(h, l);
    }
}
