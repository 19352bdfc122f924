/* Shares the time of grammar masks between tenants by deficit round robin. mask_shares.h has the
 * rule.
 *
 * The scheduler calls `mask_shares_enter` and `mask_shares_leave` for sequences with a grammar.
 * In each step it calls `mask_shares_may_run` for each of their rows and `mask_shares_run` for
 * those that it plans. When a result arrives, it calls `mask_shares_charge` and
 * `mask_shares_on_result`.
 *
 * Invariants: one scheduler owns the shares. The code has no clock and no randomness, so that a
 * replay decides the same. A balance stays within [-MASK_SHARES_OWED, MASK_SHARES_SAVED] after
 * each charge. The index of a share stays valid while the tenant has a sequence or a mask in
 * flight. */
#include "head/budget/mask_shares.h"

#include <assert.h>

#include "common/base/mem.h"
#include "proto/messages.h"

enum {
    CAP_MIN = 16,
    PARTS = 3, /* masks may take one third of a step's time */
    /* shares that are kept; above this number, the idle share with the highest balance is reused */
    MOST = 1024,
};

static bool is_idle(const struct mask_share *s)
{
    return s->n_inside == 0 && s->n_pending == 0;
}

static void forget_paid(struct mask_share *s)
{
    if (is_idle(s) && s->balance >= MASK_SHARES_SAVED)
        *s = (struct mask_share){0};
}

void mask_shares_fini(struct mask_shares *m)
{
    mem_free(m->all);
    *m = (struct mask_shares){0};
}

/* ---- shares ---- */

static uint32_t find(const struct mask_shares *m, uint64_t tenant)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->all[i].used && m->all[i].tenant == tenant)
            return i;
    return MASK_SHARE_NONE;
}

static uint32_t find_unused(const struct mask_shares *m)
{
    uint32_t i_idle = MASK_SHARE_NONE;
    for (uint32_t i = 0; i < m->n; i++) {
        if (!m->all[i].used)
            return i;
        if (is_idle(&m->all[i]) &&
            (i_idle == MASK_SHARE_NONE || m->all[i].balance > m->all[i_idle].balance))
            i_idle = i;
    }
    return m->n >= MOST ? i_idle : MASK_SHARE_NONE;
}

static uint32_t share_new(struct mask_shares *m, uint64_t tenant)
{
    uint32_t i = find_unused(m);
    if (i == MASK_SHARE_NONE && m->n == m->cap) {
        m->cap = m->cap ? 2 * m->cap : CAP_MIN;
        m->all = mem_realloc(m->all, m->cap * sizeof *m->all);
    }
    if (i == MASK_SHARE_NONE)
        i = m->n++;
    m->all[i] = (struct mask_share){
        .tenant = tenant, .balance = MASK_SHARES_SAVED, .round = 1, .used = true};
    return i;
}

uint32_t mask_shares_enter(struct mask_shares *m, uint64_t tenant)
{
    uint32_t i = find(m, tenant);
    if (i == MASK_SHARE_NONE)
        i = share_new(m, tenant);
    m->all[i].n_inside++;
    m->all[i].n_new++;
    return i;
}

static bool takes(const struct mask_share *s)
{
    return s->balance > 0 && s->n_new < MASK_SHARES_NEW;
}

static void say_takes(struct mask_shares *m, struct mask_share *s)
{
    if (!s->refused || !takes(s))
        return;
    s->refused = false;
    m->takes_more = true;
}

void mask_shares_had_first(struct mask_shares *m, uint32_t i)
{
    m->all[i].n_new--;
    say_takes(m, &m->all[i]);
}

void mask_shares_leave(struct mask_shares *m, uint32_t i, bool is_new)
{
    struct mask_share *s = &m->all[i];
    assert(s->used && s->n_inside > 0);
    s->n_inside--;
    if (is_new)
        mask_shares_had_first(m, i);
    forget_paid(s);
}

bool mask_shares_takes(struct mask_shares *m, uint64_t tenant)
{
    uint32_t i = find(m, tenant);
    if (i == MASK_SHARE_NONE || takes(&m->all[i]))
        return true;
    m->all[i].refused = true;
    return false;
}

bool mask_shares_take_more(struct mask_shares *m)
{
    bool more = m->takes_more;
    m->takes_more = false;
    return more;
}

/* ---- planning a step ---- */

void mask_shares_begin_step(struct mask_shares *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        m->all[i].n_left = m->all[i].n_due = 0;
}

bool mask_shares_may_run(struct mask_shares *m, uint32_t i, uint32_t round)
{
    struct mask_share *s = &m->all[i];
    bool had_turn = s->in_turns && round == s->round;
    if (s->balance > 0 && !had_turn)
        return true;
    s->n_left++;
    s->n_due += !had_turn;
    return false;
}

uint32_t mask_shares_run(struct mask_shares *m, uint32_t i, uint32_t expected)
{
    struct mask_share *s = &m->all[i];
    s->balance -= expected;
    s->n_pending++;
    return s->round;
}

/* Ends the round of each share whose waiting rows have all had their turn in it. */
void mask_shares_end_step(struct mask_shares *m)
{
    for (uint32_t i = 0; i < m->n; i++) {
        struct mask_share *s = &m->all[i];
        s->round += s->n_left > 0 && (s->n_due == 0 || !s->in_turns);
        s->in_turns = s->n_left > 0;
    }
}

bool mask_shares_lift(struct mask_shares *m)
{
    int64_t most = INT64_MIN;
    for (uint32_t i = 0; i < m->n; i++)
        if (m->all[i].n_left > 0 && m->all[i].balance > most)
            most = m->all[i].balance;
    if (most == INT64_MIN)
        return false;
    for (uint32_t i = 0; i < m->n; i++) {
        struct mask_share *s = &m->all[i];
        s->balance += MASK_SHARES_SAVED - most;
        if (s->balance > MASK_SHARES_SAVED)
            s->balance = MASK_SHARES_SAVED;
        if (s->used)
            say_takes(m, s);
    }
    return true;
}

/* ---- results ---- */

void mask_shares_charge(struct mask_shares *m, uint32_t i, uint32_t expected, uint32_t units)
{
    struct mask_share *s = &m->all[i];
    assert(s->n_pending > 0);
    s->n_pending--;
    s->balance += (int64_t)expected - units;
    if (s->balance > MASK_SHARES_SAVED)
        s->balance = MASK_SHARES_SAVED;
    if (s->balance < -MASK_SHARES_OWED)
        s->balance = -MASK_SHARES_OWED;
    say_takes(m, s);
    forget_paid(s);
}

void mask_shares_on_result(struct mask_shares *m, uint64_t execute_ns)
{
    uint64_t all = execute_ns / PROTO_MASK_UNIT_NS / PARTS;
    uint32_t n = 0;
    all = all < MASK_SHARES_LEAST ? MASK_SHARES_LEAST : all;
    for (uint32_t i = 0; i < m->n; i++)
        n += m->all[i].used && m->all[i].balance < MASK_SHARES_SAVED;
    for (uint32_t i = 0; i < m->n && n > 0; i++) {
        struct mask_share *s = &m->all[i];
        if (!s->used || s->balance >= MASK_SHARES_SAVED)
            continue;
        s->balance += (int64_t)(all / n);
        if (s->balance > MASK_SHARES_SAVED)
            s->balance = MASK_SHARES_SAVED;
        say_takes(m, s);
        forget_paid(s);
    }
}
