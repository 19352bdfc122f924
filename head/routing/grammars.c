/* Places requests with a grammar in an engine slot whose sampling rank has compiled the grammar.
 *
 * admission.c checks for each held request whether it waits (`grammars_waits`) and whether it
 * may be admitted (`grammars_admit`). A missing grammar is sent with MSG_GRAMMAR;
 * `grammars_on_done` handles the answer. At most ASKED_AT_ONCE grammars are unanswered for each
 * engine slot, and tenants take turns, so that one tenant's costly grammars delay no other
 * tenant.
 *
 * Invariants: everything runs on the loop thread. A waiting request stays in the held list,
 * marked `awaits_grammar`. It is tried again when `h->grammars.looks` has grown, which counts
 * events that may matter. A request with a compiled grammar also waits there while its tenant's
 * masks have used up their time (mask_shares.h). An engine slot's table ends with its epoch. Its
 * requests are then held and need their grammars again. A walk over the requests finds which
 * grammars are in use, so no state change has to update a count. */
#include "head/routing/grammars.h"

#include <assert.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/request/request.h"
#include "head/routing/grammar_room.h"
#include "head/routing/route.h"
#include "head/state/requests.h"

/* WAIT_NS is the longest time that a request waits for its grammar. It is long, since reading a
 * vocabulary may take minutes on an overloaded machine. */
#define WAIT_NS (120 * NS_PER_S)

enum {
    ASKED_AT_ONCE = 2, /* one grammar is compiled while the rank already has the next one */
    KEPT = 32,         /* unused grammars that are kept for later requests */
};

/* ---- the table ---- */

static struct request_salt key_of(const struct request *r)
{
    const struct sampling_params *s = &r->sampling;
    const uint32_t kind = (uint32_t)s->grammar_kind;
    struct shared_text_key *kept = r->grammar_text ? shared_text_key(r->grammar_text) : NULL;
    struct request_salt key;
    if (kept && kept->known && kept->kind == kind)
        return (struct request_salt){.hi = kept->hi, .lo = kept->lo};
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, sizeof key);
    crypto_generichash_update(&state, (const unsigned char *)&kind, sizeof kind);
    crypto_generichash_update(&state, (const unsigned char *)s->grammar.ptr, s->grammar.len);
    crypto_generichash_final(&state, (unsigned char *)&key, sizeof key);
    if (kept)
        *kept = (struct shared_text_key){true, kind, key.hi, key.lo};
    return key;
}

static struct engine_slot_grammar *find(const struct engine_slot *l, struct request_salt key)
{
    const struct engine_slot_grammars *t = &l->grammars;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->all[i].key.lo == key.lo && t->all[i].key.hi == key.hi)
            return &t->all[i];
    return NULL;
}

static struct engine_slot_grammar *find_id(const struct engine_slot *l, uint64_t id)
{
    return engine_slot_grammars_find(&l->grammars, id);
}

static bool has_grammar(const struct request *r)
{
    return r->sampling.grammar_kind != GRAMMAR_NONE && !request_pools(r);
}

static struct request_salt request_key(struct request *r)
{
    if (!r->has_grammar_key)
        r->grammar_key = key_of(r);
    r->has_grammar_key = true;
    return r->grammar_key;
}

/* Returns the sampling rank: rank 0 of the last stage. */
static struct worker *sampling_rank(const struct head_core *h, const struct engine_slot *l)
{
    uint32_t position = (h->config.cluster.pp - 1) * l->replica->tp;
    return l->replica->members[position];
}

void grammars_on_ready(struct head_core *h, struct engine_slot *l)
{
    l->grammars = (struct engine_slot_grammars){
        .on = link_has_type(&sampling_rank(h, l)->peer->link, MSG_GRAMMAR), .sweep_at = KEPT};
    h->grammars.looks++;
}

void grammars_on_down(struct head_core *h, struct engine_slot *l)
{
    mem_free(l->grammars.all);
    mem_free(l->grammars.dropped);
    grammar_room_fini(&l->grammars);
    l->grammars = (struct engine_slot_grammars){0};
    h->grammars.looks++;
}

/* ---- room ---- */

static bool is_used(const bool *used, const struct engine_slot_grammars *t, uint32_t i)
{
    return used[i] || (t->all[i].sent && !t->all[i].ready);
}

static void mark_used(const struct head_core *h, const struct engine_slot *l, bool *used)
{
    for (struct request *r = request_table_next(h->requests, NULL); r;
         r = request_table_next(h->requests, r)) {
        if (!r->has_grammar_key || r->finish != FINISH_NONE)
            continue;
        const struct engine_slot_grammar *x = NULL;
        if (r->grammar_engine_slot == l->replica->index)
            x = find_id(l, r->grammar_id);
        else if (r->move_at_ns == UINT64_MAX)
            x = find(l, r->grammar_key); /* the request may be moving here */
        if (x)
            used[x - l->grammars.all] = true;
    }
}

static void drop(struct engine_slot_grammars *t, uint32_t i)
{
    if (t->all[i].sent)
        t->dropped[t->n_dropped++] = t->all[i].id;
    t->n_asked -= t->all[i].sent && !t->all[i].ready;
    t->n_bytes -= t->all[i].n_bytes;
    t->memory_bytes -= t->all[i].memory_bytes;
    memmove(t->all + i, t->all + i + 1, (--t->n - i) * sizeof *t->all);
}

/* Drops unused grammars, the oldest first, until n unused ones remain. */
static void drop_unused(struct engine_slot_grammars *t, bool *used, uint32_t n_unused, uint32_t n)
{
    while (n_unused > n) {
        uint32_t i_oldest = UINT32_MAX;
        for (uint32_t i = 0; i < t->n; i++)
            if (!is_used(used, t, i) &&
                (i_oldest == UINT32_MAX || t->all[i].used < t->all[i_oldest].used))
                i_oldest = i;
        drop(t, i_oldest);
        memmove(used + i_oldest, used + i_oldest + 1, (t->n - i_oldest) * sizeof *used);
        n_unused--;
    }
}

/* Drops unused grammars. The function walks over all requests once per KEPT / 2 new grammars, or
 * once per change of `looks` when all grammars are in use. */
static void sweep(struct head_core *h, struct engine_slot *l)
{
    struct engine_slot_grammars *t = &l->grammars;
    bool used[PROTO_MAX_GRAMMARS] = {false};
    uint32_t n_unused = 0;
    if (t->swept_look == h->grammars.looks || t->n_dropped > 0)
        return;
    t->swept_look = h->grammars.looks;
    mark_used(h, l, used);
    for (uint32_t i = 0; i < t->n; i++)
        n_unused += !is_used(used, t, i);
    drop_unused(t, used, n_unused, KEPT / 2);
    if (t->n_bytes > PROTO_MAX_GRAMMARS_BYTES / 2 || grammar_room_is_short(t))
        drop_unused(t, used, n_unused < KEPT / 2 ? n_unused : KEPT / 2, 0);
    t->sweep_at = t->n + KEPT / 2 > KEPT ? t->n + KEPT / 2 : KEPT;
}

/* Returns true when the table may have another grammar of this tenant. Half of the table is open
 * to every tenant. In the other half a tenant is limited to its part. */
static bool has_room(const struct engine_slot_grammars *t, const struct request *r)
{
    uint32_t n_own = 0;
    if (t->n >= PROTO_MAX_GRAMMARS ||
        t->n_bytes + r->sampling.grammar.len > PROTO_MAX_GRAMMARS_BYTES ||
        !grammar_room_takes(t, r->tenant))
        return false;
    if (t->n < PROTO_MAX_GRAMMARS / 2 && t->n_bytes < PROTO_MAX_GRAMMARS_BYTES / 2)
        return true;
    for (uint32_t i = 0; i < t->n; i++)
        n_own += t->all[i].tenant == r->tenant;
    return n_own < PROTO_MAX_GRAMMARS / 8;
}

static void reserve(struct engine_slot_grammars *t)
{
    if (t->n < t->cap)
        return;
    uint32_t cap = t->cap ? 2 * t->cap : KEPT;
    struct engine_slot_grammar *all = mem_array(cap, sizeof *all);
    uint64_t *dropped = mem_array(cap, sizeof *dropped);
    if (t->n > 0)
        memcpy(all, t->all, t->n * sizeof *all);
    if (t->n_dropped > 0)
        memcpy(dropped, t->dropped, t->n_dropped * sizeof *dropped);
    mem_free(t->all);
    mem_free(t->dropped);
    t->all = all;
    t->dropped = dropped;
    t->cap = cap;
}

/* ---- asking ---- */

static void send_grammar(struct head_core *h, struct engine_slot *l, struct engine_slot_grammar *x,
                         const struct request *r)
{
    if (l->grammars.n_asked >= ASKED_AT_ONCE)
        return;
    struct msg m = {.type = MSG_GRAMMAR,
                    .grammar = {.term_epoch = l->replica->epoch,
                                .id = x->id,
                                .on = true,
                                .kind = r->sampling.grammar_kind,
                                .source = r->sampling.grammar}};
    x->sent = peers_send(&h->peers, sampling_rank(h, l)->peer, &m) == STATUS_OK;
    l->grammars.n_asked += x->sent;
}

static struct engine_slot_grammar *begin(struct head_core *h, const struct request *r,
                                         struct engine_slot *l, bool in_turn)
{
    struct engine_slot_grammars *t = &l->grammars;
    if (t->n_asked >= ASKED_AT_ONCE)
        return NULL;
    if (in_turn && t->last_tenant == r->tenant && t->n > 0) {
        h->grammars.passed_over = true;
        return NULL;
    }
    if (t->n >= t->sweep_at || !has_room(t, r))
        sweep(h, l);
    if (!has_room(t, r))
        return NULL;
    reserve(t);
    t->last_tenant = r->tenant;
    t->n_bytes += r->sampling.grammar.len;
    struct engine_slot_grammar *x = &t->all[t->n++];
    *x = (struct engine_slot_grammar){.key = r->grammar_key,
                                      .id = ++h->grammars.last_id,
                                      .tenant = r->tenant,
                                      .n_bytes = (uint32_t)r->sampling.grammar.len};
    return x;
}

static bool is_ready(struct head_core *h, const struct request *r, struct engine_slot *l,
                     bool in_turn, uint64_t *id)
{
    struct engine_slot_grammar *x = find(l, r->grammar_key);
    if (!x)
        x = begin(h, r, l, in_turn);
    *id = x ? x->id : 0;
    if (!x)
        return false;
    x->used = ++h->grammars.n_uses;
    if (!x->sent)
        send_grammar(h, l, x, r);
    return x->ready;
}

/* ---- requests ---- */

static void keep_waiting(struct head_core *h, struct request *r)
{
    if (!r->awaits_grammar) {
        h->grammars.n_waiting++;
        r->grammar_since_ns = h->now_ns;
    }
    r->awaits_grammar = true;
    r->grammar_look = h->grammars.looks;
}

bool grammars_waits(const struct head_core *h, const struct request *r)
{
    return r->awaits_grammar && r->grammar_look == h->grammars.looks;
}

struct engine_slot *grammars_engine_slot(struct head_core *h, struct request *r)
{
    if (!r->awaits_grammar || r->grammar_id == 0)
        return NULL;
    struct engine_slot *l = &h->engine_slots[r->grammar_engine_slot];
    if (l->scheduler && find_id(l, r->grammar_id) && route_takes(h, r, l))
        return l;
    r->grammar_id = 0;
    return NULL;
}

bool grammars_cannot(struct head_core *h, struct request *r)
{
    if (!r->awaits_grammar || r->grammar_id != 0)
        return false;
    for (uint32_t i = 0; i < h->n_live; i++) {
        const struct engine_slot *l = &h->engine_slots[h->live[i]];
        if (!l->grammars.on || l->grammars.n_asked < ASKED_AT_ONCE || find(l, r->grammar_key))
            return false;
    }
    keep_waiting(h, r);
    return true;
}

bool grammars_admit(struct head_core *h, struct request *r, struct engine_slot *l)
{
    if (!has_grammar(r) || !l->grammars.on)
        return true;
    (void)request_key(r);
    bool ready = is_ready(h, r, l, !h->grammars.any_turn, &r->grammar_id) &&
                 scheduler_takes_masks(l->scheduler, r) &&
                 grammar_room_admits(h, l, find_id(l, r->grammar_id), r);
    r->grammar_engine_slot = l->replica->index;
    if (!ready)
        keep_waiting(h, r);
    return ready;
}

bool grammars_may_move(struct head_core *h, struct request *r, struct engine_slot *l)
{
    uint64_t id;
    if (!has_grammar(r) || !l->grammars.on)
        return true;
    (void)request_key(r);
    return is_ready(h, r, l, false, &id) && grammar_room_would(h, l, find_id(l, id), r);
}

bool grammars_move(struct head_core *h, struct request *r, struct engine_slot *l)
{
    if (!has_grammar(r) || !l->grammars.on)
        return true;
    const struct engine_slot_grammar *x = find(l, request_key(r));
    if (!x || !x->ready || !grammar_room_admits(h, l, x, r))
        return false;
    r->grammar_id = x->id;
    r->grammar_engine_slot = l->replica->index;
    return true;
}

/* ---- answers ---- */

/* Ends the requests that wait for this grammar. Others are not affected. */
static void end_waiting(struct head_core *h, const struct engine_slot *l, uint64_t id,
                        enum status status, const char *text)
{
    for (struct request *r = h->held_first, *next; r; r = next) {
        next = r->next;
        if (r->awaits_grammar && r->grammar_id == id && r->grammar_engine_slot == l->replica->index)
            requests_end(h, r, FINISH_ERROR, status, text);
    }
}

static void end_not_compiled(struct head_core *h, const struct engine_slot *l,
                             const struct msg_grammar_done *m)
{
    char text[sizeof((struct request *)0)->text];
    int n = (int)(m->text.len < sizeof text ? m->text.len : sizeof text);
    if (m->status == STATUS_INVALID)
        snprintf(text, sizeof text, "Invalid grammar: %.*s", n, m->text.ptr ? m->text.ptr : "");
    else
        snprintf(text, sizeof text, "A worker could not compile the request's grammar: %.*s", n,
                 m->text.ptr ? m->text.ptr : "");
    end_waiting(h, l, m->id, m->status, text);
}

/* Ends requests whose matcher can never fit. The rank has the grammar and may drop it. If the
 * list of grammars to drop is full (no credit for long), the entry stays in the table until a
 * sweep finds it. */
static void end_too_large(struct head_core *h, struct engine_slot *l, struct engine_slot_grammar *x)
{
    char text[sizeof((struct request *)0)->text];
    snprintf(text, sizeof text,
             "An answer with the request's grammar needs %u MiB, more than a worker has for "
             "grammars (--grammar-room). Use a simpler grammar or schema.",
             (uint32_t)(x->matcher_bytes >> 20));
    end_waiting(h, l, x->id, STATUS_INVALID, text);
    if (l->grammars.n_dropped < l->grammars.cap)
        drop(&l->grammars, (uint32_t)(x - l->grammars.all));
}

void grammars_on_done(struct head_core *h, struct worker *w, const struct msg_grammar_done *m)
{
    const struct replica *g = w->replica;
    if (!g || g->state != REPLICA_READY || m->term_epoch != g->epoch)
        return; /* this is an answer of an ended epoch */
    struct engine_slot *l = &h->engine_slots[g->index];
    if (!l->scheduler || sampling_rank(h, l) != w)
        return;
    struct engine_slot_grammar *x = find_id(l, m->id);
    if (!x || !x->sent || x->ready)
        return; /* the grammar was dropped meanwhile, or answered twice */
    h->grammars.looks++;
    l->grammars.n_asked--;
    x->ready = m->status == STATUS_OK;
    if (x->ready) {
        grammar_room_told(&l->grammars, x, m);
        if (!grammar_room_fits(&l->grammars, x)) {
            end_too_large(h, l, x);
            return;
        }
        for (uint32_t i = 0; i < h->n_live; i++)
            /* a request that is to move may have waited for this grammar */
            h->engine_slots[h->live[i]].look_due = true;
        return;
    }
    x->sent = false; /* the rank has nothing to drop */
    end_not_compiled(h, l, m);
    drop(&l->grammars, (uint32_t)(x - l->grammars.all));
}

void grammars_on_session(struct head_core *h, struct worker *w)
{
    const struct replica *g = w->replica;
    if (!g || g->state != REPLICA_READY || !h->engine_slots[g->index].scheduler)
        return;
    struct engine_slot *l = &h->engine_slots[g->index];
    if (sampling_rank(h, l) != w)
        return;
    for (uint32_t i = 0; i < l->grammars.n; i++)
        l->grammars.all[i].sent &= l->grammars.all[i].ready;
    l->grammars.n_asked = 0;
    h->grammars.looks++;
}

/* ---- turns and ticks ---- */

void grammars_turn(struct head_core *h)
{
    for (uint32_t i = 0; i < h->n_live; i++) {
        struct engine_slot *l = &h->engine_slots[h->live[i]];
        struct engine_slot_grammars *t = &l->grammars;
        if ((l->scheduler && scheduler_takes_more_masks(l->scheduler)) || grammar_room_turn(h, l))
            h->grammars.looks++;
        for (; t->n_dropped > 0; t->n_dropped--) {
            struct msg m = {
                .type = MSG_GRAMMAR,
                .grammar = {.term_epoch = l->replica->epoch, .id = t->dropped[t->n_dropped - 1]}};
            if (peers_send(&h->peers, sampling_rank(h, l)->peer, &m) != STATUS_OK)
                break; /* without credit, a later turn tries again */
        }
    }
}

/* Returns true when the request's grammar is compiled. The request then waits for its tenant's
 * mask time or for memory for its matcher. */
static bool has_ready(const struct head_core *h, const struct request *r)
{
    const struct engine_slot *l = &h->engine_slots[r->grammar_engine_slot];
    const struct engine_slot_grammar *x = r->grammar_id ? find_id(l, r->grammar_id) : NULL;
    return x && x->ready;
}

void grammars_tick(struct head_core *h)
{
    h->grammars.looks++; /* credit may have arrived, or a replica may accept requests again */
    for (struct request *r = h->held_first, *next; r; r = next) {
        next = r->next;
        if (r->awaits_grammar && h->now_ns - r->grammar_since_ns >= WAIT_NS && !has_ready(h, r))
            requests_end(h, r, FINISH_ERROR, STATUS_LIMIT,
                         "No worker compiled the request's grammar within 120 s. The workers are "
                         "overloaded; try again later.");
    }
}

/* ---- for tests ---- */

static bool check_engine_slot(const struct engine_slot *l, struct error *err)
{
    const struct engine_slot_grammars *t = &l->grammars;
    uint32_t n_asked = 0;
    uint64_t n_bytes = 0, memory_bytes = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct engine_slot_grammar *x = &t->all[i];
        memory_bytes += x->memory_bytes;
        n_asked += x->sent && !x->ready;
        n_bytes += x->n_bytes;
        if ((i > 0 && t->all[i - 1].id >= x->id) || (x->ready && !x->sent))
            return error_set(err, STATUS_INTERNAL,
                             "the head's state is wrong: an engine slot's list of grammars is out "
                             "of order. Report this bug"),
                   false;
    }
    if (n_asked != t->n_asked || n_asked > ASKED_AT_ONCE || n_bytes != t->n_bytes ||
        memory_bytes != t->memory_bytes)
        return error_set(err, STATUS_INTERNAL,
                         "the head's state is wrong: %u grammars are being compiled, but the count "
                         "is %u. Report this bug",
                         n_asked, t->n_asked),
               false;
    return true;
}

static bool check_placed(const struct engine_slot *l, const struct request *r)
{
    const struct engine_slot_grammar *x = find_id(l, r->grammar_id);
    return !l->grammars.on || (r->grammar_engine_slot == l->replica->index && x && x->ready);
}

bool grammars_check(const struct head_core *h, struct error *err)
{
    uint32_t n_waiting = 0;
    for (uint32_t i = 0; i < h->n_live; i++)
        if (!check_engine_slot(&h->engine_slots[h->live[i]], err))
            return false;
    for (const struct request *r = request_table_next(h->requests, NULL); r;
         r = request_table_next(h->requests, r)) {
        n_waiting += r->awaits_grammar;
        if (r->awaits_grammar && (r->sched || r->finish != FINISH_NONE))
            return error_set(err, STATUS_INTERNAL,
                             "the head's state is wrong: a request that waits for a grammar is not "
                             "in the list of held requests. Report this bug"),
                   false;
        if (r->sched && has_grammar(r) && !check_placed(&h->engine_slots[r->i_replica], r))
            return error_set(err, STATUS_INTERNAL,
                             "the head's state is wrong: a request is in a scheduler although its "
                             "grammar is not ready. Report this bug"),
                   false;
    }
    if (n_waiting != h->grammars.n_waiting)
        return error_set(err, STATUS_INTERNAL,
                         "the head's state is wrong: %u requests wait for grammars, but the count "
                         "is %u. Report this bug",
                         n_waiting, h->grammars.n_waiting),
               false;
    return true;
}
