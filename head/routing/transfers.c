/* Runs the life of each move of a request between two replicas.
 *
 * transfer_policy.c begins a move with a copy of blocks or as a recomputation. `transfers_turn`
 * sends orders to ranks and advances each move; `transfers_on_msg` handles the answers.
 *
 * Invariants: everything runs on the loop thread. A move finds its request by name, so code that
 * changes the request otherwise (an end, a cancel, a lost replica, a newer attempt) need not
 * update moves. The destination's blocks stay held until every rank there that received an order
 * has answered, or the epoch is over, since a rank may still write into them. The source's
 * blocks are released at once after a failure. */
#include "head/routing/transfers.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/record/step_log.h"
#include "head/request/request.h"
#include "head/routing/admission.h"

/* longer than the 10 s after which ranks end a transfer */
#define TIMEOUT_NS        (15 * NS_PER_S)
#define START_BYTES_PER_S 1e9
#define LOW_BYTES_PER_S   1e6
#define HIGH_BYTES_PER_S  1e12
#define SPEED_WEIGHT      (1.0 / 8) /* weight of the newest measurement */
/* RETRY_NS is the delay before a failed move is tried again. Each further failure doubles the
 * delay. */
#define RETRY_NS           NS_PER_S
#define RETRY_MOST_DOUBLED 5u

void transfers_init(struct transfers *t)
{
    *t = (struct transfers){.bytes_per_s = START_BYTES_PER_S};
}

static void transfer_free(struct transfer *x)
{
    for (int i = 0; i < 2; i++) {
        mem_free(x->sides[i].told);
        mem_free(x->sides[i].answered);
        mem_free(x->sides[i].blocks);
    }
    mem_free(x->block_groups);
    mem_free(x);
}

void transfers_fini(struct transfers *t)
{
    for (struct transfer *x = t->first, *next; x; x = next) {
        next = x->next;
        transfer_free(x);
    }
    *t = (struct transfers){0};
}

/* ---- sides ---- */

static struct engine_slot *engine_slot_of(const struct head_core *h,
                                          const struct transfer_side *side)
{
    return side->is_over ? NULL : &h->engine_slots[side->i_replica];
}

static void side_init(struct transfer_side *side, const struct engine_slot *l)
{
    *side = (struct transfer_side){
        .i_replica = l->replica->index, .epoch = l->replica->epoch, .n_ranks = l->replica->world};
}

/* Returns true when all ranks of the side have answered, or the side's epoch is over. After a
 * failure only the ranks that received an order have to answer, since no further orders are
 * sent. */
static bool side_is_quiet(const struct transfer_side *side, bool failed)
{
    for (uint32_t i = 0; i < side->n_ranks && !side->is_over; i++)
        if (!side->answered[i] && (side->told[i] || !failed))
            return false;
    return true;
}

static void let_go(struct head_core *h, const struct transfer *x, int i_side)
{
    const struct engine_slot *l = engine_slot_of(h, &x->sides[i_side]);
    if (!l)
        return;
    step_log_let_go(h->config.step_log, x->sides[i_side].i_replica, x->id);
    scheduler_let_go(l->scheduler, x->id);
    h->engine_slots[x->sides[i_side].i_replica].due = true;
}

static void leave_engine_slot(struct head_core *h, const struct transfer *x, int i_side)
{
    struct engine_slot *l = engine_slot_of(h, &x->sides[i_side]);
    if (l && l->transfer == x)
        l->transfer = NULL;
    if (l)
        l->look_due = true;
}

/* Returns the request while it is still in the replica where the move began, or NULL. */
static struct request *request_of(const struct head_core *h, const struct transfer *x)
{
    struct request *r = request_table_find(h->requests, x->request, x->i_choice);
    const struct transfer_side *from = &x->sides[TRANSFER_FROM];
    if (!r || from->is_over || r->i_replica != from->i_replica || r->finish != FINISH_NONE ||
        !r->sched)
        return NULL;
    return r;
}

/* ---- begin ---- */

static struct transfer *begin(struct head_core *h, struct request *r,
                              const struct engine_slot *from, struct engine_slot *to)
{
    struct transfer *x = mem_zalloc(sizeof *x), **at = &h->transfers.first;
    *x = (struct transfer){.state = TRANSFER_LEAVING,
                           .id = ++h->transfers.last_id,
                           .request = r->id,
                           .i_choice = r->i_choice,
                           .n_coming = r->n_ids,
                           .start_ns = h->now_ns};
    side_init(&x->sides[TRANSFER_FROM], from);
    side_init(&x->sides[TRANSFER_TO], to);
    while (*at)
        at = &(*at)->next;
    *at = x;
    h->transfers.n++;
    to->n_coming++;
    to->n_coming_tokens += x->n_coming;
    r->move_at_ns = UINT64_MAX; /* the request does not begin a second move at the same time */
    return x;
}

/* Removes the move from the list. If the request still exists, it is considered again at
 * `again_ns`. */
static void end(struct head_core *h, struct transfer *x, uint64_t again_ns)
{
    struct transfer **at = &h->transfers.first;
    struct request *r = request_table_find(h->requests, x->request, x->i_choice);
    struct engine_slot *to = engine_slot_of(h, &x->sides[TRANSFER_TO]);
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    h->transfers.n--;
    if (r && r->move_at_ns == UINT64_MAX && x->state != TRANSFER_STUCK)
        r->move_at_ns = again_ns;
    if (to) {
        to->n_coming--;
        to->n_coming_tokens -= x->n_coming;
    }
    leave_engine_slot(h, x, TRANSFER_FROM);
    leave_engine_slot(h, x, TRANSFER_TO);
    transfer_free(x);
}

static void leave(struct head_core *h, struct request *r)
{
    step_log_leave(h->config.step_log, r->i_replica, r);
    (void)scheduler_leave(h->engine_slots[r->i_replica].scheduler, r);
    h->engine_slots[r->i_replica].due = true;
}

void transfer_begin_recompute(struct head_core *h, struct request *r, struct engine_slot *from,
                              struct engine_slot *to)
{
    (void)begin(h, r, from, to);
    leave(h, r);
}

/* Writes to the transfer the list of the blocks that the other replica's cache lacks. */
static bool list_blocks(struct head_core *h, struct transfer *x, const struct engine_slot *from,
                        const struct engine_slot *to)
{
    uint32_t n_from, n_to, n = 0;
    const struct blocks_part *a = scheduler_parts(from->scheduler, x->id, &n_from);
    const struct blocks_part *b = scheduler_parts(to->scheduler, x->id, &n_to);
    for (uint32_t i = 0; i < n_to; i++)
        n += !b[i].was_there;
    x->n_blocks = n;
    if (n_from != n_to || n > PROTO_MAX_TRANSFER_BLOCKS)
        return false;
    x->block_groups = mem_array(n, sizeof *x->block_groups);
    for (int s = 0; s < 2; s++) {
        x->sides[s].blocks = mem_array(n, sizeof(uint32_t));
        x->sides[s].told = mem_array(x->sides[s].n_ranks, 1);
        x->sides[s].answered = mem_array(x->sides[s].n_ranks, 1);
    }
    for (uint32_t i = 0, k = 0; i < n_to; i++) {
        if (b[i].was_there)
            continue;
        x->block_groups[k] = b[i].i_group;
        x->sides[TRANSFER_FROM].blocks[k] = a[i].id;
        x->sides[TRANSFER_TO].blocks[k++] = b[i].id;
        x->n_bytes += to->replica->kv_groups[b[i].i_group].bytes_per_block;
    }
    random_secure(x->comm_id, sizeof x->comm_id);
    return true;
}

static bool take_blocks(struct head_core *h, const struct transfer *x, struct request *r,
                        const struct engine_slot *from, const struct engine_slot *to,
                        uint32_t n_tokens)
{
    struct step_log *log = h->config.step_log;
    /* the request as it will be in the other replica, only for lookups */
    struct request coming = *r;
    coming.salt = x->salt;
    coming.chains = NULL;
    step_log_hold(log, from->replica->index, r, n_tokens, x->id);
    if (scheduler_hold(from->scheduler, r, n_tokens, x->id) != STATUS_OK)
        return false;
    step_log_import(log, to->replica->index, &coming, n_tokens, x->id);
    if (scheduler_import(to->scheduler, &coming, n_tokens, x->id) == STATUS_OK)
        return true;
    let_go(h, x, TRANSFER_FROM);
    return false;
}

/* Ends a complete copy. */
static void copied(struct head_core *h, struct transfer *x)
{
    struct request *r = request_of(h, x);
    const struct engine_slot *to = engine_slot_of(h, &x->sides[TRANSFER_TO]);
    let_go(h, x, TRANSFER_FROM);
    if (to) {
        step_log_imported(h->config.step_log, to->replica->index, x->id);
        scheduler_imported(to->scheduler, x->id);
    }
    leave_engine_slot(h, x, TRANSFER_FROM);
    leave_engine_slot(h, x, TRANSFER_TO);
    x->state = TRANSFER_LEAVING;
    if (r && to && !to->replica->draining)
        leave(h, r);
}

bool transfer_begin_copy(struct head_core *h, struct request *r, struct engine_slot *from,
                         struct engine_slot *to, uint32_t n_tokens)
{
    struct transfer *x = begin(h, r, from, to);
    x->n_tokens = n_tokens;
    x->salt = request_salt_copied(r->salt, from->replica->epoch);
    if (!take_blocks(h, x, r, from, to, n_tokens)) {
        end(h, x, 0);
        return false;
    }
    if (!list_blocks(h, x, from, to)) {
        let_go(h, x, TRANSFER_FROM);
        let_go(h, x, TRANSFER_TO);
        end(h, x, 0);
        return false;
    }
    log_debug("kv_transfer",
              "id=%llu request=%016llx%016llx choice=%u from=%llu to=%llu tokens=%u blocks=%u "
              "bytes=%llu",
              (unsigned long long)x->id, (unsigned long long)r->id.hi, (unsigned long long)r->id.lo,
              r->i_choice, (unsigned long long)from->replica->id,
              (unsigned long long)to->replica->id, n_tokens, x->n_blocks,
              (unsigned long long)x->n_bytes);
    x->state = TRANSFER_COPYING;
    from->transfer = to->transfer = x;
    if (x->n_blocks == 0)
        copied(h, x);
    return true;
}

/* ---- orders to ranks ---- */

static enum status tell(struct head_core *h, const struct transfer *x, int i_side, uint32_t i_rank)
{
    const struct transfer_side *side = &x->sides[i_side];
    const struct worker *rank_slots[2];
    uint8_t comm_id[TRANSFER_ID_BYTES];
    for (int s = 0; s < 2; s++)
        rank_slots[s] = h->engine_slots[x->sides[s].i_replica].replica->members[i_rank];
    memcpy(comm_id, x->comm_id, sizeof comm_id);
    for (uint32_t i = 0; i < sizeof i_rank; i++) /* each pair of ranks has its own id */
        comm_id[i] ^= (uint8_t)(i_rank >> 8 * i);
    struct msg m = {
        .type = MSG_KV_TRANSFER,
        .kv_transfer = {.term_epoch = side->epoch,
                        .id = x->id,
                        .sends = i_side == TRANSFER_FROM,
                        .from_address = str_from(rank_slots[TRANSFER_FROM]->desc.kv_address),
                        .to_address = str_from(rank_slots[TRANSFER_TO]->desc.kv_address),
                        .comm_id = {comm_id, sizeof comm_id},
                        .block_groups = {x->block_groups, x->n_blocks},
                        .blocks = {side->blocks, x->n_blocks}}};
    return peers_send(&h->peers, rank_slots[i_side]->peer, &m);
}

/* Sends orders to the ranks. A rank without credit gets its order in a later turn. */
static void tell_all(struct head_core *h, struct transfer *x)
{
    for (int s = 0; s < 2; s++) {
        struct transfer_side *side = &x->sides[s];
        for (uint32_t i = 0; i < side->n_ranks && !x->failed; i++)
            if (!side->told[i] && tell(h, x, s, i) == STATUS_OK)
                side->told[i] = true;
    }
}

/* ---- leaving ---- */

static void go_on_leaving(struct head_core *h, struct transfer *x)
{
    struct request *r = request_of(h, x);
    struct engine_slot *to = engine_slot_of(h, &x->sides[TRANSFER_TO]);
    if (!r || !to || to->replica->draining) {
        let_go(h, x, TRANSFER_TO);
        end(h, x, 0);
        return;
    }
    if (!scheduler_may_leave(r)) {
        if (r->state == REQUEST_RUNNING)
            leave(h, r);
        return;
    }
    r->n_moves_failed = 0;
    bool with_blocks = x->n_tokens > 0;
    if (admission_move(h, r, to, with_blocks ? x->salt : r->own_salt)) {
        h->transfers.n_moved++;
        h->transfers.n_recomputed += !with_blocks;
    } else {
        let_go(h, x, TRANSFER_TO);
    }
    end(h, x, 0);
}

/* ---- the end of copying ---- */

static void fail(struct transfer *x, const char *who, struct str text)
{
    if (!x->failed)
        snprintf(x->why, sizeof x->why, "%s: %.*s", who, (int)(text.len < 120 ? text.len : 120),
                 text.ptr ? text.ptr : "");
    x->failed = true;
}

static void learn_speed(struct transfers *t, const struct transfer *x, uint64_t now_ns)
{
    uint64_t passed_ns = now_ns - x->start_ns;
    uint64_t took_ns = x->took_ns && x->took_ns < passed_ns ? x->took_ns : passed_ns;
    if (x->n_bytes == 0 || took_ns == 0)
        return; /* the speed of this copy cannot be measured */
    double v = (double)x->n_bytes * (double)NS_PER_S / (double)took_ns;
    v = v < LOW_BYTES_PER_S ? LOW_BYTES_PER_S : v > HIGH_BYTES_PER_S ? HIGH_BYTES_PER_S : v;
    t->bytes_per_s += (v - t->bytes_per_s) * SPEED_WEIGHT;
}

static uint64_t retry_at(struct head_core *h, const struct transfer *x)
{
    struct request *r = request_table_find(h->requests, x->request, x->i_choice);
    if (!r)
        return 0;
    uint32_t n = r->n_moves_failed < RETRY_MOST_DOUBLED ? r->n_moves_failed : RETRY_MOST_DOUBLED;
    r->n_moves_failed += r->n_moves_failed < UINT8_MAX;
    return h->now_ns + (RETRY_NS << n);
}

/* Returns true when the request has ended and the epoch of one side is over. No request is left
 * to move, so the move has not failed. */
static bool is_moot(const struct head_core *h, const struct transfer *x)
{
    const struct request *r = request_table_find(h->requests, x->request, x->i_choice);
    return (!r || r->finish != FINISH_NONE) &&
           (x->sides[TRANSFER_FROM].is_over || x->sides[TRANSFER_TO].is_over);
}

static void failed(struct head_core *h, struct transfer *x)
{
    uint64_t again_ns = retry_at(h, x);
    if (!is_moot(h, x)) {
        h->transfers.n_failed++;
        log_warn("kv_transfer_failed", "id=%llu request=%016llx%016llx choice=%u reason=%s",
                 (unsigned long long)x->id, (unsigned long long)x->request.hi,
                 (unsigned long long)x->request.lo, x->i_choice, log_quote(x->why));
    }
    /* a rank may still read the blocks, but its copy will not be used */
    let_go(h, x, TRANSFER_FROM);
    if (side_is_quiet(&x->sides[TRANSFER_TO], true)) {
        let_go(h, x, TRANSFER_TO);
        end(h, x, again_ns);
        return;
    }
    struct request *r = request_of(h, x);
    if (r)
        r->move_at_ns = again_ns;
    leave_engine_slot(h, x, TRANSFER_FROM);
    x->state = TRANSFER_STUCK;
}

static void go_on_copying(struct head_core *h, struct transfer *x)
{
    struct transfers *t = &h->transfers;
    bool late = h->now_ns - x->start_ns >= TIMEOUT_NS;
    if (!x->failed)
        tell_all(h, x);
    if (!x->failed && late)
        fail(x, "timeout",
             STR("cannot copy the KV blocks: a rank did not report the end of the copy in time"));
    if (x->failed) { /* other requests need not wait until these ranks detect the failure */
        failed(h, x);
        return;
    }
    if (!side_is_quiet(&x->sides[0], false) || !side_is_quiet(&x->sides[1], false))
        return;
    learn_speed(t, x, h->now_ns);
    t->n_done++;
    t->n_bytes += x->n_bytes * x->sides[TRANSFER_TO].n_ranks;
    log_debug("kv_transferred", "id=%llu bytes=%llu took_ms=%.1f", (unsigned long long)x->id,
              (unsigned long long)x->n_bytes,
              (double)(h->now_ns - x->start_ns) / (double)NS_PER_MS);
    copied(h, x);
    go_on_leaving(h, x); /* the request leaves before its old replica can admit it again */
}

static void go_on(struct head_core *h, struct transfer *x)
{
    if (x->state == TRANSFER_COPYING)
        go_on_copying(h, x);
    else if (x->state == TRANSFER_LEAVING)
        go_on_leaving(h, x);
    else if (side_is_quiet(&x->sides[TRANSFER_TO], true)) {
        let_go(h, x, TRANSFER_TO);
        end(h, x, 0);
    }
}

/* ---- turns, messages, losses ---- */

void transfers_turn(struct head_core *h)
{
    for (struct transfer *x = h->transfers.first, *next; x; x = next) {
        next = x->next;
        go_on(h, x);
    }
}

void transfers_tick(struct head_core *h)
{
    for (uint32_t i = 0; i < h->n_live; i++)
        h->engine_slots[h->live[i]].look_due = true;
}

/* Returns the side to which this rank belongs, or NULL. */
static struct transfer_side *side_of(struct transfer *x, const struct worker *w)
{
    const struct replica *g = w->replica;
    for (int s = 0; s < 2 && g; s++) {
        struct transfer_side *side = &x->sides[s];
        if (side->told && !side->is_over && side->i_replica == g->index &&
            side->epoch == g->epoch && w->position < side->n_ranks)
            return side;
    }
    return NULL;
}

void transfers_on_msg(struct head_core *h, struct worker *w, const struct msg_kv_transferred *m)
{
    for (struct transfer *x = h->transfers.first; x; x = x->next) {
        struct transfer_side *side = x->id == m->id ? side_of(x, w) : NULL;
        if (!side || m->term_epoch != side->epoch || x->state == TRANSFER_LEAVING ||
            !side->told[w->position] || side->answered[w->position])
            continue;
        side->answered[w->position] = true;
        if (m->status != STATUS_OK)
            fail(x, status_name(m->status), m->text);
        x->took_ns = m->took_ns > x->took_ns ? m->took_ns : x->took_ns;
    }
}

void transfers_on_down(struct head_core *h, const struct replica *g)
{
    for (struct transfer *x = h->transfers.first; x; x = x->next) {
        for (int s = 0; s < 2; s++) {
            struct transfer_side *side = &x->sides[s];
            if (side->is_over || side->i_replica != g->index || side->epoch != g->epoch)
                continue;
            side->is_over = true;
            if (x->state == TRANSFER_COPYING)
                fail(x, "lost",
                     STR("cannot copy the KV blocks: one of the two replicas has ended"));
        }
    }
    h->engine_slots[g->index].transfer = NULL;
    h->engine_slots[g->index].n_coming = 0;
    h->engine_slots[g->index].n_coming_tokens = 0;
}

bool transfers_owe(const struct head_core *h, const struct worker *w)
{
    for (struct transfer *x = h->transfers.first; x; x = x->next) {
        const struct transfer_side *side = side_of(x, w);
        if (side && x->state != TRANSFER_LEAVING && side->told[w->position] &&
            !side->answered[w->position])
            return true;
    }
    return false;
}

uint32_t transfers_under_way(const struct head_core *h)
{
    uint32_t n = 0;
    for (const struct transfer *x = h->transfers.first; x; x = x->next)
        n += x->state == TRANSFER_COPYING;
    return n;
}

bool transfers_leave(const struct head_core *h, const struct replica *g)
{
    for (const struct transfer *x = h->transfers.first; x; x = x->next) {
        if (x->state == TRANSFER_LEAVING && x->sides[TRANSFER_FROM].i_replica == g->index &&
            request_of(h, x))
            return true;
    }
    return false;
}

bool transfers_check(const struct head_core *h, struct error *err)
{
    uint32_t n = 0, n_coming = 0, n_tokens = 0;
    for (const struct transfer *x = h->transfers.first; x; x = x->next) {
        n++;
        for (int s = 0; s < 2; s++) {
            const struct engine_slot *l = engine_slot_of(h, &x->sides[s]);
            if (l && (!l->scheduler || l->replica->epoch != x->sides[s].epoch))
                return error_set(err, STATUS_INTERNAL,
                                 "the head's state is wrong: a transfer belongs to an epoch that "
                                 "has ended. Report this bug"),
                       false;
            bool keeps =
                x->state == TRANSFER_COPYING || (x->state == TRANSFER_STUCK && s == TRANSFER_TO);
            if (l && keeps != (l->transfer == x))
                return error_set(err, STATUS_INTERNAL,
                                 "the head's state is wrong: an engine slot and its transfer "
                                 "disagree. Report this bug"),
                       false;
        }
        bool counts = engine_slot_of(h, &x->sides[TRANSFER_TO]) != NULL;
        n_coming += counts;
        n_tokens += counts ? x->n_coming : 0;
    }
    for (uint32_t i = 0; i < h->n_live; i++) {
        n_coming -= h->engine_slots[h->live[i]].n_coming;
        n_tokens -= (uint32_t)h->engine_slots[h->live[i]].n_coming_tokens;
    }
    if (n == h->transfers.n && n_coming == 0 && n_tokens == 0)
        return true;
    return error_set(err, STATUS_INTERNAL,
                     "the head's state is wrong: %u transfers exist, but the count is %u; engine "
                     "slots expect %d too many. Report this bug",
                     n, h->transfers.n, (int)n_coming),
           false;
}
