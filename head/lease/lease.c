/* Implements the state machine of the lease. lease.h has the interface and
 * docs/develop/recovery.md the rules.
 *
 * A waiting head takes the lease only after a whole TTL in which the store has answered every
 * question. A store that lost its data shows every head a free lease, and during this TTL the
 * serving head can write its lease again. The watch starts again when the store's term fell, or
 * when a lease ended while the store did not run or its clock jumped. Silence never ends a
 * serving head. It ends only after an answer that another head has, or has had, the lease.
 *
 * A lease ends by itself when its head is gone. There are two exceptions: a lease without an end
 * (an operator's SET, a restored dump) and a lease from before the store's clock jumped back. A
 * waiting head detects both by the remaining time. It watches for a whole TTL whether any head
 * renews the lease. Then it sets the lease to its own TTL. A head with a longer TTL renews at a
 * third of that TTL. If the remaining time may belong to such a head, the waiting head watches
 * for half of that time. */
#include "head/lease/lease.h"

#include "common/base/clock.h"
#include "common/options/rows.h"

enum { ASK_MS = 250, RENEWALS_PER_TTL = 3 };

void lease_init(struct lease *l, uint64_t ttl_ns)
{
    *l = (struct lease){.ttl_ns = ttl_ns};
}

static void stop_watching(struct lease *l)
{
    l->is_watching = false;
    l->longer.is = false;
}

void lease_on_store(struct lease *l, bool up, uint64_t now_ns)
{
    l->is_up = up;
    l->open = LEASE_NOTHING; /* the store answers an open question with NULL, or never */
    stop_watching(l);
    l->ask_ns = now_ns;
}

uint64_t lease_wanted_term(const struct lease *l)
{
    uint64_t above = l->term_seen;
    if (l->state != LEASE_SERVING)
        return above;
    return l->term > above ? l->term : above + 1;
}

static uint64_t pause_ns(const struct lease *l)
{
    uint64_t ask = ASK_MS * NS_PER_MS, renew = l->ttl_ns / RENEWALS_PER_TTL;
    return l->state == LEASE_SERVING || renew < ask ? renew : ask;
}

static bool may_take(const struct lease *l, uint64_t now_ns)
{
    return l->is_watching && now_ns - l->watched_ns >= l->ttl_ns;
}

bool lease_has_no_end(const struct lease *l)
{
    return l->longer.is && (l->longer.left_ms < 0 ||
                            (uint64_t)l->longer.left_ms * NS_PER_MS > LEASE_TTL_MAX_S * NS_PER_S);
}

static bool is_abandoned(const struct lease *l, uint64_t now_ns)
{
    uint64_t wait = l->ttl_ns;
    if (!l->longer.is)
        return false;
    if (!lease_has_no_end(l) && (uint64_t)l->longer.begun_ms * NS_PER_MS / 2 > wait)
        wait = (uint64_t)l->longer.begun_ms * NS_PER_MS / 2;
    return now_ns - l->longer.since_ns >= wait;
}

/* Detects a renewal by the remaining time: it grew, or fell by much less than the time that
 * passed. */
static void watch_end(struct lease *l, const struct lease_answer *a, uint64_t now_ns)
{
    struct lease_long *x = &l->longer;
    int64_t passed = (int64_t)((now_ns - x->since_ns) / NS_PER_MS);
    bool was = x->is, has_end = a->left_ms >= 0, had_end = x->begun_ms >= 0;
    x->is = a->holder == LEASE_OTHERS && (!has_end || (uint64_t)a->left_ms * NS_PER_MS > l->ttl_ns);
    x->left_ms = a->left_ms;
    if (was && had_end == has_end && (!has_end || x->begun_ms - a->left_ms >= passed / 2))
        return;
    x->begun_ms = a->left_ms;
    x->since_ns = now_ns;
}

enum lease_question lease_next(struct lease *l, uint64_t now_ns)
{
    if (!l->is_up || l->open != LEASE_NOTHING || l->state == LEASE_ENDED || now_ns < l->ask_ns)
        return LEASE_NOTHING;
    if (l->state == LEASE_SERVING)
        l->open = LEASE_RENEW;
    else if (is_abandoned(l, now_ns))
        l->open = LEASE_BOUND;
    else
        l->open = may_take(l, now_ns) ? LEASE_TAKE : LEASE_LOOK;
    l->asked_ns = now_ns;
    l->ask_ns = now_ns + pause_ns(l);
    return l->open;
}

static enum lease_order on_renewed(struct lease *l, const struct lease_answer *a)
{
    if (a->holder != LEASE_OURS) {
        l->state = LEASE_ENDED;
        return LEASE_STEP_DOWN;
    }
    if (a->term <= l->term)
        return LEASE_STAY;
    l->term = a->term;
    return LEASE_RAISE;
}

static enum lease_order on_looked(struct lease *l, enum lease_question asked,
                                  const struct lease_answer *a, uint64_t now_ns)
{
    bool went_back = a->term < l->store_term;
    l->store_term = a->term;
    /* A head that did not run for a whole TTL before it read this answer has lost the lease, and
     * asks again. */
    bool is_fresh = now_ns - l->asked_ns < l->ttl_ns;
    if (asked == LEASE_TAKE && a->holder == LEASE_OURS && is_fresh) {
        l->state = LEASE_SERVING;
        l->term = a->term;
        l->ask_ns = now_ns + pause_ns(l);
        return LEASE_SERVE;
    }
    if (a->term > l->term_seen)
        l->term_seen = a->term; /* the term is kept here, since the store may lose it */
    watch_end(l, a, now_ns);
    if (!l->is_watching || went_back || a->holder == LEASE_LATE) {
        l->is_watching = true;
        l->watched_ns = now_ns;
    }
    return LEASE_STAY;
}

enum lease_order lease_on_answer(struct lease *l, const struct lease_answer *a, uint64_t now_ns)
{
    enum lease_question asked = l->open;
    l->open = LEASE_NOTHING;
    if (!a)
        stop_watching(l);
    if (!a || asked == LEASE_NOTHING || l->state == LEASE_ENDED)
        return LEASE_STAY;
    return asked == LEASE_RENEW ? on_renewed(l, a) : on_looked(l, asked, a, now_ns);
}

void lease_see_term(struct lease *l, uint64_t term, uint64_t now_ns)
{
    if (term > LEASE_TERM_MAX)
        return;
    if (term > l->term_seen)
        l->term_seen = term;
    if (l->state == LEASE_SERVING && l->ask_ns > now_ns)
        l->ask_ns = now_ns;
}
