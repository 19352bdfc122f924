/* Counts the memory for grammars on each engine slot's sampling rank. grammar_room.h has the
 * rules.
 *
 * grammars.c checks the memory before a grammar is sent or a request is admitted, and calls
 * `grammar_room_turn`. Sizes come from GrammarDone and Result messages.
 *
 * Invariants: everything runs on the loop thread. Grammars are counted when they are added and
 * dropped. Matchers are counted by a walk over all requests, a few times a second and when the
 * sum exceeds the limit. Most requests fit and cause no walk. One matcher alone always fits, so
 * no request waits forever. */
#include "head/routing/grammar_room.h"

#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/request/request.h"
#include "head/state/requests.h"

/* MOST_BYTES limits the sizes that a rank may report, so that sums cannot overflow. */
#define MOST_BYTES (1ull << 40)
#define COUNT_NS   (50 * NS_PER_MS)
#define AGAIN_NS   (5 * NS_PER_MS)
/* FIRST_BYTES is the number of bytes that a matcher's first masks are assumed to add, until its
 * rank reports its size. */
#define FIRST_BYTES (1ull << 20)

enum {
    GRAMMARS_PART = 4, /* 1 / GRAMMARS_PART of the memory is for grammars */
    ANYBODYS = 4,      /* all but 1 / ANYBODYS of a part is open to every tenant */
    TENANTS_PART = 8,
    CAP_MIN = 8,
};

static uint64_t clamp(uint64_t bytes)
{
    return bytes < MOST_BYTES ? bytes : MOST_BYTES;
}

static uint64_t for_grammars(const struct engine_slot_grammars *t)
{
    return t->room_bytes / GRAMMARS_PART;
}

static uint64_t for_matchers(const struct engine_slot_grammars *t)
{
    return t->room_bytes - for_grammars(t);
}

static uint64_t anybodys(uint64_t part)
{
    return part - part / ANYBODYS;
}

void grammar_room_fini(struct engine_slot_grammars *t)
{
    mem_free(t->matchers.shares);
    t->matchers = (struct engine_slot_matchers){0};
}

/* ---- grammars ---- */

void grammar_room_told(struct engine_slot_grammars *t, struct engine_slot_grammar *x,
                       const struct msg_grammar_done *m)
{
    if (!t->has_room)
        t->room_bytes = clamp(m->room_bytes);
    t->has_room = true;
    x->memory_bytes = clamp(m->bytes);
    x->matcher_bytes = clamp(m->matcher_bytes);
    t->memory_bytes += x->memory_bytes;
}

bool grammar_room_takes(const struct engine_slot_grammars *t, uint64_t tenant)
{
    uint64_t n_own = 0, part = for_grammars(t);
    if (t->room_bytes == 0 || t->memory_bytes < anybodys(part))
        return true;
    for (uint32_t i = 0; i < t->n; i++)
        n_own += t->all[i].tenant == tenant ? t->all[i].memory_bytes : 0;
    return t->memory_bytes < part && n_own < part / TENANTS_PART;
}

bool grammar_room_is_short(const struct engine_slot_grammars *t)
{
    return t->room_bytes > 0 && t->memory_bytes > for_grammars(t) / 2;
}

/* ---- matchers ---- */

bool grammar_room_fits(const struct engine_slot_grammars *t, const struct engine_slot_grammar *x)
{
    return t->room_bytes == 0 || x->matcher_bytes + FIRST_BYTES <= for_matchers(t);
}

static struct matcher_share *share_of(struct engine_slot_matchers *m, uint64_t tenant)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->shares[i].tenant == tenant)
            return &m->shares[i];
    if (m->n == m->cap) {
        m->cap = m->cap ? 2 * m->cap : CAP_MIN;
        m->shares = mem_realloc(m->shares, m->cap * sizeof *m->shares);
    }
    m->shares[m->n] = (struct matcher_share){.tenant = tenant};
    return &m->shares[m->n++];
}

static void add(struct engine_slot_matchers *m, uint64_t tenant, uint64_t n_bytes)
{
    share_of(m, tenant)->n_bytes += n_bytes;
    m->n_bytes += n_bytes;
}

static uint64_t matcher_bytes(const struct engine_slot_grammar *x, const struct request *r)
{
    return r->matcher_kib > 0 ? (uint64_t)r->matcher_kib << 10 : x->matcher_bytes + FIRST_BYTES;
}

/* Returns the bytes of r's matcher in `l`, or 0 when there is none. */
static uint64_t bytes_in(const struct engine_slot *l, const struct request *r)
{
    if (!r->sched || r->grammar_id == 0 || r->grammar_engine_slot != l->replica->index)
        return 0;
    const struct engine_slot_grammar *x = engine_slot_grammars_find(&l->grammars, r->grammar_id);
    return x ? matcher_bytes(x, r) : 0;
}

static void count(struct head_core *h, struct engine_slot *l)
{
    struct engine_slot_matchers *m = &l->grammars.matchers;
    m->n = 0;
    m->n_bytes = 0;
    m->counted_ns = h->now_ns;
    m->counted = true;
    for (const struct request *r = request_table_next(h->requests, NULL); r;
         r = request_table_next(h->requests, r)) {
        uint64_t n_bytes = bytes_in(l, r);
        if (n_bytes > 0)
            add(m, r->tenant, n_bytes);
    }
}

/* Returns true when a matcher of n_bytes fits. A matcher that is alone always fits; otherwise it
 * would wait forever. */
static bool has_room(struct engine_slot_grammars *t, uint64_t n_bytes, const struct request *r)
{
    struct engine_slot_matchers *m = &t->matchers;
    uint64_t part = for_matchers(t), after = m->n_bytes + n_bytes;
    if (m->n_bytes == 0 || after <= anybodys(part))
        return true;
    return after <= part && share_of(m, r->tenant)->n_bytes + n_bytes <= part / TENANTS_PART;
}

bool grammar_room_would(struct head_core *h, struct engine_slot *l,
                        const struct engine_slot_grammar *x, const struct request *r)
{
    struct engine_slot_grammars *t = &l->grammars;
    uint64_t n_bytes = matcher_bytes(x, r);
    if (t->room_bytes == 0)
        return true;
    if (!t->matchers.counted)
        count(h, l);
    if (has_room(t, n_bytes, r))
        return true;
    if (t->matchers.counted_ns != h->now_ns) {
        count(h, l);
        if (has_room(t, n_bytes, r))
            return true;
    }
    t->matchers.refused = true;
    return false;
}

bool grammar_room_admits(struct head_core *h, struct engine_slot *l,
                         const struct engine_slot_grammar *x, const struct request *r)
{
    if (!grammar_room_would(h, l, x, r))
        return false;
    if (l->grammars.room_bytes > 0)
        add(&l->grammars.matchers, r->tenant, matcher_bytes(x, r));
    return true;
}

/* ---- matchers beyond their part ---- */

static struct request *youngest_of_largest(const struct head_core *h, const struct engine_slot *l,
                                           uint32_t *n)
{
    const struct engine_slot_matchers *m = &l->grammars.matchers;
    uint32_t i_largest = 0;
    for (uint32_t i = 1; i < m->n; i++)
        if (m->shares[i].n_bytes > m->shares[i_largest].n_bytes)
            i_largest = i;
    struct request *found = NULL;
    *n = 0;
    for (struct request *r = request_table_next(h->requests, NULL); r;
         r = request_table_next(h->requests, r)) {
        if (bytes_in(l, r) == 0)
            continue;
        ++*n;
        if (r->tenant == m->shares[i_largest].tenant && r->move_at_ns != UINT64_MAX &&
            (!found || r->arrival_seq > found->arrival_seq))
            found = r;
    }
    return found;
}

static void end_too_large(struct head_core *h, struct request *r)
{
    char text[sizeof r->text];
    snprintf(text, sizeof text,
             "After %u tokens the answer's grammar needs %u MiB, more than a worker has for "
             "grammars (--grammar-room). Use a simpler grammar or schema.",
             request_n_generated(r), r->matcher_kib >> 10);
    requests_end(h, r, FINISH_ERROR, STATUS_INVALID, text);
}

/* Suspends a request: removes it from its scheduler. The token that is being sampled now is
 * sampled again later. */
static void put_aside(struct head_core *h, struct engine_slot *l, struct request *r)
{
    (void)scheduler_leave(l->scheduler, r);
    requests_send_away(h, r);
    h->grammars.n_put_aside++;
}

static void relieve(struct head_core *h, struct engine_slot *l)
{
    while (l->grammars.matchers.n_bytes > for_matchers(&l->grammars)) {
        uint32_t n;
        struct request *r = youngest_of_largest(h, l, &n);
        if (!r)
            return; /* a request that moves to another engine slot leaves without this */
        if (n == 1)
            end_too_large(h, r);
        else
            put_aside(h, l, r);
        count(h, l);
    }
}

bool grammar_room_turn(struct head_core *h, struct engine_slot *l)
{
    struct engine_slot_grammars *t = &l->grammars;
    struct engine_slot_matchers *m = &t->matchers;
    if (t->room_bytes == 0 || !l->scheduler)
        return false;
    if (m->counted && m->n_bytes > 0 && h->now_ns - m->counted_ns >= COUNT_NS) {
        count(h, l);
        relieve(h, l);
    }
    if (!m->refused || h->now_ns - m->counted_ns < AGAIN_NS)
        return false;
    m->refused = false;
    return true;
}
