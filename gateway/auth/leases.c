/* Takes and returns the leases of one key's buckets. leases.h describes the scheme.
 * limits.c calls this file before and after each request. `sharing->ask` sends each request to
 * the store, and quotas.c passes the answers to `leases_answer` or `leases_lost`.
 * At most one request per bucket is open at the store. A key is in the active list, with one
 * reference, while any of its buckets has units leased, owed or asked for. Only the loop thread
 * calls these functions, and time is an argument. */
#include "gateway/auth/leases.h"

#include <math.h>
#include <stddef.h>

#include "common/base/clock.h"

/* `LEASE_NS` is the time for which an answer is valid and an unused lease is kept. */
#define LEASE_NS     (1 * NS_PER_S)
#define ASK_PAUSE_NS (50 * NS_PER_MS)
/* wait before the store is asked again for an empty bucket, which an operator may refill */
#define ASK_AGAIN_NS (5 * NS_PER_S)
#define WAIT_MAX_S   1e8

/* ---- active keys: something is leased, owed or asked for ---- */

static void activate(struct sharing *s, struct api_key *k)
{
    if (k->prev_active)
        return;
    api_key_hold(k);
    k->next_active = s->active;
    k->prev_active = &s->active;
    if (k->next_active)
        k->next_active->prev_active = &k->next_active;
    s->active = k;
}

static void deactivate(struct api_key *k)
{
    *k->prev_active = k->next_active;
    if (k->next_active)
        k->next_active->prev_active = k->prev_active;
    k->next_active = NULL;
    k->prev_active = NULL;
    api_key_drop(k);
}

void leases_fini(struct sharing *s)
{
    while (s->active)
        deactivate(s->active);
}

void leases_link(struct sharing *s, bool up)
{
    s->up = up;
    s->epoch++;
}

/* ---- questions to the store ---- */

static double largest_credit(const struct sharing *s, const struct quota_lease *l)
{
    return fmax(1, l->terms.size / (4.0 * s->n_gateways));
}

/* Returns the number of units to request: twice the demand since the last request to the store,
 * so that requests become rarer as use grows. The number is at least 1. It is at most half of
 * the bucket's size divided by the number of gateways, unless that is below 1. */
static double amount_to_ask_for(const struct sharing *s, const struct quota_lease *l)
{
    return fmin(fmax(1, 2 * l->demand), fmax(1, floor(l->terms.size / (2.0 * s->n_gateways))));
}

/* Reports all owed units and asks for `want` more units. Units that are not spent stay in the
 * bucket. Does nothing while a request is open or the store cannot be asked. */
static void ask(struct sharing *s, struct api_key *k, enum quota q, double want)
{
    struct bucket *b = &k->buckets[q];
    double take = b->level < 0 ? -b->level : 0;
    if (b->lease.asking || !s->up || !s->ask(s->ctx, k, q, take, want))
        return;
    b->lease.asking = true;
    b->lease.want = want;
    b->lease.demand = 0;
    b->level += take;
}

static void ask_if_low(struct sharing *s, struct api_key *k, enum quota q, uint64_t now_ns)
{
    const struct quota_lease *l = &k->buckets[q].lease;
    double want = amount_to_ask_for(s, l);
    if (now_ns >= l->ask_after_ns && k->buckets[q].level < fmax(1, want / 2))
        ask(s, k, q, want);
}

/* ---- spending ---- */

static void sync(const struct sharing *s, struct bucket *b, struct quota_terms t)
{
    struct quota_lease *l = &b->lease;
    bool other_terms = l->terms.per_s != t.per_s || l->terms.size != t.size;
    if (l->epoch == s->epoch && !other_terms)
        return;
    if (l->epoch != s->epoch && b->level > 0)
        b->level = 0; /* this level was filled by time and was not leased */
    bool asking = l->epoch == s->epoch && l->asking;
    *l = (struct quota_lease){.terms = t, .left = t.size, .epoch = s->epoch, .asking = asking};
}

double leases_room(struct sharing *s, struct api_key *k, enum quota q, struct quota_terms t,
                   uint64_t now_ns)
{
    struct bucket *b = &k->buckets[q];
    struct quota_lease *l = &b->lease;
    sync(s, b, t);
    double credit = largest_credit(s, l);
    if (l->empty)
        credit = 0;
    else if (now_ns < l->known_until_ns)
        credit = fmin(credit, fmax(0, l->left / s->n_gateways));
    return b->level + credit;
}

void leases_spend(struct sharing *s, struct api_key *k, enum quota q, double amount,
                  uint64_t now_ns)
{
    struct bucket *b = &k->buckets[q];
    activate(s, k);
    b->level -= amount;
    b->lease.demand += amount;
    b->lease.used_ns = now_ns;
    ask_if_low(s, k, q, now_ns);
}

double leases_refused(struct sharing *s, struct api_key *k, enum quota q, double amount,
                      uint64_t now_ns)
{
    struct quota_lease *l = &k->buckets[q].lease;
    activate(s, k);
    l->demand += amount;
    l->used_ns = now_ns;
    ask_if_low(s, k, q, now_ns);
    return l->empty_until_ns > now_ns ? (double)(l->empty_until_ns - now_ns) / 1e9 : 0;
}

void leases_answer(struct sharing *s, struct api_key *k, enum quota q, double grant, double left,
                   uint64_t now_ns)
{
    struct bucket *b = &k->buckets[q];
    struct quota_lease *l = &b->lease;
    double need = fmin(1, l->terms.size);
    if (!l->asking || l->epoch != s->epoch)
        return; /* the answer belongs to an earlier link */
    l->asking = false;
    b->level += grant;
    l->left = left;
    l->known_until_ns = now_ns + LEASE_NS;
    l->empty = left < need && b->level < need && (l->want <= 0 || grant < l->want);
    if (!l->empty)
        return;
    double wait_s = fmin((need - left) / l->terms.per_s, WAIT_MAX_S);
    uint64_t wait_ns = (uint64_t)(wait_s * 1e9);
    wait_ns = wait_ns > ASK_PAUSE_NS ? wait_ns : ASK_PAUSE_NS;
    l->empty_until_ns = now_ns + wait_ns;
    l->ask_after_ns = now_ns + (wait_ns < ASK_AGAIN_NS ? wait_ns : ASK_AGAIN_NS);
}

void leases_lost(struct api_key *k, enum quota q)
{
    k->buckets[q].lease.asking = false;
}

/* ---- time ---- */

/* Returns an unused lease or reports owed units. Returns true when the bucket needs no more
 * work. */
static bool tick_bucket(struct sharing *s, struct api_key *k, enum quota q, uint64_t now_ns)
{
    struct bucket *b = &k->buckets[q];
    struct quota_lease *l = &b->lease;
    if (l->epoch != s->epoch)
        return true; /* the lease has not been used since the link changed */
    if (l->asking)
        return false;
    if (b->level > 0 && now_ns > l->used_ns + LEASE_NS) {
        if (!s->ask(s->ctx, k, q, -b->level, 0))
            return false;
        b->level = 0;
        l->asking = true;
        l->want = 0;
        return false;
    }
    if (l->empty && now_ns >= l->ask_after_ns) {
        if (l->demand > 0)
            ask(s, k, q, amount_to_ask_for(s, l));
        else
            /* no request wants units, and the state of the store's bucket is unknown now */
            l->empty = false;
    } else if (b->level < 0) {
        ask(s, k, q, now_ns < l->ask_after_ns ? 0 : amount_to_ask_for(s, l));
    }
    return b->level == 0 && !l->asking && !l->empty;
}

void leases_tick(struct sharing *s, uint64_t now_ns)
{
    for (struct api_key *k = s->active, *next; k; k = next) {
        next = k->next_active;
        bool done = true;
        for (enum quota q = 0; q < QUOTA_COUNT; q++)
            done = (!s->up || tick_bucket(s, k, q, now_ns)) && done;
        if (done)
            deactivate(k);
    }
}
