/* Tests the rules of the lease. Most tests are tables: each row gives the time, an event and the
 * expected question or order, and `play` passes them to `struct lease`. The last test runs two
 * heads and one store through random events. Invariants: the store never gives the lease to two
 * heads at once, and terms only grow. Times are in milliseconds of a clock that the test
 * advances. All tests run on one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "head/lease/lease.h"

#define TTL_MS 2000u

enum event { UP, DOWN, ASK, ANSWER, NONE, SEE };

struct step {
    uint64_t at_ms;
    enum event event;
    enum lease_holder holder; /* holder in the answer, for ANSWER */
    uint64_t term;            /* term of the store or peer, for ANSWER and SEE */
    int want;                 /* expected question for ASK; expected order for ANSWER and NONE */
    uint64_t want_term; /* wanted term for ASK; own term for ANSWER and NONE; 0 = not checked */
};

static void play(const char *name, const struct step *steps, size_t n)
{
    struct lease l;
    lease_init(&l, TTL_MS * NS_PER_MS);
    for (size_t i = 0; i < n; i++) {
        const struct step *s = &steps[i];
        struct lease_answer a = {.holder = s->holder, .term = s->term};
        uint64_t now = s->at_ms * NS_PER_MS, term = 0;
        int got = s->want;
        switch (s->event) {
        case UP:
        case DOWN:
            lease_on_store(&l, s->event == UP, now);
            break;
        case ASK:
            got = (int)lease_next(&l, now);
            term = lease_wanted_term(&l);
            break;
        case ANSWER:
        case NONE:
            got = (int)lease_on_answer(&l, s->event == ANSWER ? &a : NULL, now);
            term = l.term;
            break;
        case SEE:
            lease_see_term(&l, s->term, now);
            break;
        }
        if (got != s->want || (s->want_term && term != s->want_term))
            fail_msg("%s, step %zu: got %d with term %llu, want %d with %llu", name, i, got,
                     (unsigned long long)term, s->want, (unsigned long long)s->want_term);
    }
}

#define TAKEN(t)                                                                                   \
    {0, UP, 0, 0, 0, 0}, {0, ASK, 0, 0, LEASE_LOOK, 0},                                            \
        {1, ANSWER, LEASE_FREE, (t)-1, LEASE_STAY, 0}, {2001, ASK, 0, 0, LEASE_TAKE, 0},           \
    {                                                                                              \
        2002, ANSWER, LEASE_OURS, (t), LEASE_SERVE, (t)                                            \
    }

static void waits_a_whole_ttl(void **state)
{
    const struct step steps[] = {
        {0, ASK, 0, 0, LEASE_NOTHING, 0}, /* the store cannot be reached */
        {0, UP, 0, 0, 0, 0},
        {0, ASK, 0, 0, LEASE_LOOK, 0},
        {0, ASK, 0, 0, LEASE_NOTHING, 0},            /* the lease has one question open at a time */
        {100, ANSWER, LEASE_FREE, 0, LEASE_STAY, 0}, /* the lease is watched from here on */
        {249, ASK, 0, 0, LEASE_NOTHING, 0},
        {250, ASK, 0, 0, LEASE_LOOK, 0},
        {251, ANSWER, LEASE_FREE, 0, LEASE_STAY, 0},
        {2099, ASK, 0, 0, LEASE_LOOK, 0},
        {2100, ANSWER, LEASE_FREE, 0, LEASE_STAY, 0},
        {2349, ASK, 0, 0, LEASE_TAKE, 0},
        {2350, ANSWER, LEASE_OURS, 1, LEASE_SERVE, 1},
        {2351, ASK, 0, 0, LEASE_NOTHING, 0},
        {3016, ASK, 0, 0, LEASE_NOTHING, 0}, /* less than a third of the TTL has passed */
        {3017, ASK, 0, 0, LEASE_RENEW, 1},
        {3017, ANSWER, LEASE_OURS, 1, LEASE_STAY, 1},
    };
    play("waits", steps, sizeof steps / sizeof *steps);
}

/* A head did not run between its question and the answer. Another head may have taken the lease
 * meanwhile. */
static void an_answer_from_long_ago_is_no_lease(void **state)
{
    const struct step steps[] = {
        {0, UP, 0, 0, 0, 0},
        {0, ASK, 0, 0, LEASE_LOOK, 0},
        {1, ANSWER, LEASE_FREE, 0, LEASE_STAY, 0},
        {2001, ASK, 0, 0, LEASE_TAKE, 0},
        {4001, ANSWER, LEASE_OURS, 1, LEASE_STAY, 0},
        {4001, ASK, 0, 0, LEASE_TAKE, 1},
        {4002, ANSWER, LEASE_OTHERS, 2, LEASE_STAY, 0},
    };
    play("long ago", steps, sizeof steps / sizeof *steps);
}

static void another_has_it(void **state)
{
    const struct step steps[] = {
        {0, UP, 0, 0, 0, 0},
        {0, ASK, 0, 0, LEASE_LOOK, 0},
        /* The watch may also start with another head's lease. */
        {1, ANSWER, LEASE_OTHERS, 7, LEASE_STAY, 0},
        {2001, ASK, 0, 0, LEASE_TAKE, 0},
        {2002, ANSWER, LEASE_OTHERS, 7, LEASE_STAY, 0},
        {2251, ASK, 0, 0, LEASE_TAKE, 0},
        {2252, ANSWER, LEASE_OURS, 8, LEASE_SERVE, 8},
    };
    play("another has it", steps, sizeof steps / sizeof *steps);
}

static void a_break_begins_the_wait_again(void **state)
{
    const struct step link[] = {
        {0, UP, 0, 0, 0, 0},
        {0, ASK, 0, 0, LEASE_LOOK, 0},
        {1, ANSWER, LEASE_OTHERS, 7, LEASE_STAY, 0},
        {1900, ASK, 0, 0, LEASE_LOOK, 0},
        {1950, NONE, 0, 0, LEASE_STAY, 0},
        {1950, DOWN, 0, 0, 0, 0},
        {1951, ASK, 0, 0, LEASE_NOTHING, 0},
        {2400, UP, 0, 0, 0, 0}, /* the store is empty */
        {2400, ASK, 0, 0, LEASE_LOOK, 0},
        {2401, ANSWER, LEASE_FREE, 0, LEASE_STAY, 0},
        {4400, ASK, 0, 0, LEASE_LOOK, 0},
        /* The other head has taken its lease again. */
        {4401, ANSWER, LEASE_OTHERS, 7, LEASE_STAY, 0},
        {4651, ASK, 0, 0, LEASE_TAKE, 0},
    };
    play("the link broke", link, sizeof link / sizeof *link);
    const struct step nonsense[] = {
        {0, UP, 0, 0, 0, 0},
        {0, ASK, 0, 0, LEASE_LOOK, 0},
        {1, ANSWER, LEASE_FREE, 0, LEASE_STAY, 0},
        {1900, ASK, 0, 0, LEASE_LOOK, 0},
        {1901, NONE, 0, 0, LEASE_STAY, 0},
        {2200, ASK, 0, 0, LEASE_LOOK, 0},
        {2201, ANSWER, LEASE_FREE, 0, LEASE_STAY, 0},
        {4200, ASK, 0, 0, LEASE_LOOK, 0},
        {4201, ANSWER, LEASE_FREE, 0, LEASE_STAY, 0},
        {4451, ASK, 0, 0, LEASE_TAKE, 0},
    };
    play("an answer was none", nonsense, sizeof nonsense / sizeof *nonsense);
    const struct step emptied[] = {
        {0, UP, 0, 0, 0, 0},
        {0, ASK, 0, 0, LEASE_LOOK, 0},
        {1, ANSWER, LEASE_OTHERS, 7, LEASE_STAY, 0},
        /* The store's script refuses, because the store has lost the term. */
        {2001, ASK, 0, 0, LEASE_TAKE, 0},
        {2002, ANSWER, LEASE_FREE, 0, LEASE_STAY, 0},
        {2252, ASK, 0, 0, LEASE_LOOK, 0},
        {2253, ANSWER, LEASE_FREE, 0, LEASE_STAY, 0},
        {4002, ASK, 0, 0, LEASE_TAKE, 0},
    };
    play("emptied under the link", emptied, sizeof emptied / sizeof *emptied);
}

/* The store reads a TAKE late, after the other lease has ended. The TAKE does not get the lease,
 * and the head that served has another TTL. */
static void a_store_that_stood_still_is_watched_anew(void **state)
{
    const struct step steps[] = {
        {0, UP, 0, 0, 0, 0},
        {0, ASK, 0, 0, LEASE_LOOK, 0},
        {1, ANSWER, LEASE_OTHERS, 4, LEASE_STAY, 0},
        {2001, ASK, 0, 0, LEASE_TAKE, 0},
        {2950, ANSWER, LEASE_LATE, 4, LEASE_STAY, 0},
        {3000, ASK, 0, 0, LEASE_LOOK, 0},
        {3001, ANSWER, LEASE_FREE, 4, LEASE_STAY, 0},
        {4949, ASK, 0, 0, LEASE_LOOK, 0},
        {4949, ANSWER, LEASE_FREE, 4, LEASE_STAY, 0},
        {5199, ASK, 0, 0, LEASE_TAKE, 0},
        {5200, ANSWER, LEASE_OURS, 5, LEASE_SERVE, 5},
    };
    play("stood still", steps, sizeof steps / sizeof steps[0]);
}

static void a_take_that_was_done_and_not_answered(void **state)
{
    const struct step steps[] = {
        {0, UP, 0, 0, 0, 0},
        {0, ASK, 0, 0, LEASE_LOOK, 0},
        {1, ANSWER, LEASE_FREE, 3, LEASE_STAY, 0},
        {2001, ASK, 0, 0, LEASE_TAKE, 0},
        {2500, NONE, 0, 0, LEASE_STAY, 0},
        {2500, DOWN, 0, 0, 0, 0},
        {2600, UP, 0, 0, 0, 0},
        {2600, ASK, 0, 0, LEASE_LOOK, 0},
        {2601, ANSWER, LEASE_OURS, 4, LEASE_STAY, 0},
        {4601, ASK, 0, 0, LEASE_TAKE, 0},
        {4602, ANSWER, LEASE_OURS, 5, LEASE_SERVE, 5},
    };
    play("done and not answered", steps, sizeof steps / sizeof *steps);
}

static void goes_on_without_a_store(void **state)
{
    const struct step steps[] = {
        TAKEN(4),
        {2700, ASK, 0, 0, LEASE_RENEW, 4},
        {3700, NONE, 0, 0, LEASE_STAY, 4},
        {3700, DOWN, 0, 0, 0, 0},
        {900000, ASK, 0, 0, LEASE_NOTHING, 0},
        {900001, UP, 0, 0, 0, 0},
        {900001, ASK, 0, 0, LEASE_RENEW, 4},
        {900002, ANSWER, LEASE_OURS, 4, LEASE_STAY, 4},
    };
    play("without a store", steps, sizeof steps / sizeof *steps);
}

static void steps_down(void **state)
{
    static const enum lease_holder holders[] = {LEASE_OTHERS, LEASE_GONE, LEASE_FREE};
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++) {
        const struct step steps[] = {
            TAKEN(4),
            {2700, ASK, 0, 0, LEASE_RENEW, 4},
            {2701, ANSWER, holders[i], 5, LEASE_STEP_DOWN, 4},
            {9000, ASK, 0, 0, LEASE_NOTHING, 0},
            {9000, ANSWER, LEASE_OURS, 6, LEASE_STAY, 4},
        };
        play("steps down", steps, sizeof steps / sizeof *steps);
    }
}

static void a_peer_has_seen_another_term(void **state)
{
    const struct step own[] = {
        TAKEN(4),
        {2010, SEE, 0, 9, 0, 0},
        {2010, ASK, 0, 0, LEASE_RENEW, 10}, /* the head asks at once */
        {2011, NONE, 0, 0, LEASE_STAY, 4},  /* without an answer the term does not rise */
        {3000, ASK, 0, 0, LEASE_RENEW, 10},
        {3001, ANSWER, LEASE_OURS, 10, LEASE_RAISE, 10},
        {4000, ASK, 0, 0, LEASE_RENEW, 10},
        {4001, ANSWER, LEASE_OURS, 10, LEASE_STAY, 10},
        {4002, SEE, 0, 10, 0, 0}, /* the same term at a peer belongs to another head */
        {4002, ASK, 0, 0, LEASE_RENEW, 11},
        {4003, ANSWER, LEASE_OURS, 11, LEASE_RAISE, 11},
        {4004, SEE, 0, UINT32_MAX - 1, 0, 0}, /* this term would leave no term for the next head */
        {5000, ASK, 0, 0, LEASE_RENEW, 11},
    };
    play("still its own", own, sizeof own / sizeof *own);
    const struct step others[] = {
        TAKEN(4),
        {2010, SEE, 0, 9, 0, 0},
        {2010, ASK, 0, 0, LEASE_RENEW, 10},
        {2011, ANSWER, LEASE_OTHERS, 9, LEASE_STEP_DOWN, 4},
    };
    play("another's", others, sizeof others / sizeof *others);
}

/* ---- another head's lease that does not end ---- */

enum { NEVER = -1, HOUR_MS = 3600000 };

struct look {
    uint64_t at_ms;
    int64_t left_ms; /* remaining time that the store reports */
    enum lease_question want;
    bool has_no_end; /* expected result of lease_has_no_end */
};

static void look_on(const char *name, const struct look *looks, size_t n)
{
    struct lease l;
    lease_init(&l, TTL_MS * NS_PER_MS);
    lease_on_store(&l, true, 0);
    for (size_t i = 0; i < n; i++) {
        uint64_t now = looks[i].at_ms * NS_PER_MS;
        enum lease_question got = lease_next(&l, now);
        struct lease_answer a = {LEASE_OTHERS, 7, looks[i].left_ms};
        if (got != looks[i].want)
            fail_msg("%s, look %zu: asks %d", name, i, (int)got);
        assert_int_equal(lease_on_answer(&l, &a, now), LEASE_STAY);
        if (lease_has_no_end(&l) != looks[i].has_no_end)
            fail_msg("%s, look %zu: says the opposite", name, i);
    }
}

static void nobody_renews_what_does_not_end(void **state)
{
    static const struct look never[] = {
        {0, NEVER, LEASE_LOOK, true},
        {1000, NEVER, LEASE_LOOK, true},
        {1999, NEVER, LEASE_LOOK, true},
        {2300, TTL_MS, LEASE_BOUND, false}, /* a whole TTL has passed */
        {2600, TTL_MS - 300, LEASE_TAKE, false},
    };
    look_on("never", never, sizeof never / sizeof *never);
    static const struct look jumped[] = {
        {0, HOUR_MS, LEASE_LOOK, true},
        {250, HOUR_MS - 250, LEASE_LOOK, true},
        {1250, HOUR_MS - 1230, LEASE_LOOK, true}, /* an answer may be late */
        {2000, TTL_MS, LEASE_BOUND, false},
    };
    look_on("an hour", jumped, sizeof jumped / sizeof *jumped);
    static const struct look again[] = {
        {0, HOUR_MS, LEASE_LOOK, true},
        {1000, 1500, LEASE_LOOK, false},       /* the lease was renewed */
        {1500, 2 * HOUR_MS, LEASE_LOOK, true}, /* the clock jumps again */
        {3000, 2 * HOUR_MS, LEASE_TAKE, true},
        {3499, 2 * HOUR_MS - 499, LEASE_TAKE, true},
        /* the remaining time is as high as before, so another head renews the lease */
        {4999, 2 * HOUR_MS, LEASE_TAKE, true},
        {6000, 2 * HOUR_MS - 1000, LEASE_TAKE, true},
        {7000, TTL_MS, LEASE_BOUND, false},
    };
    look_on("renewed", again, sizeof again / sizeof *again);
}

/* A lease with ten seconds left can be normal for a head with another --lease-ttl. */
static void another_ttl_is_respected(void **state)
{
    static const struct look alive[] = {
        {0, 10000, LEASE_LOOK, false},    {1000, 9000, LEASE_LOOK, false},
        {3000, 7000, LEASE_TAKE, false},  {3400, 9900, LEASE_TAKE, false},
        {6600, 6700, LEASE_TAKE, false},  {6900, 9900, LEASE_TAKE, false},
        {10100, 6700, LEASE_TAKE, false}, {10400, 9900, LEASE_TAKE, false},
    };
    look_on("alive", alive, sizeof alive / sizeof *alive);
    static const struct look gone[] = {
        {0, 10000, LEASE_LOOK, false},
        {1000, 9000, LEASE_LOOK, false},
        {4900, 5100, LEASE_TAKE, false},
        {5200, TTL_MS, LEASE_BOUND, false},
    };
    look_on("gone", gone, sizeof gone / sizeof *gone);
}

/* A head that could not reach the store does not know whether the lease was renewed, so it
 * watches from the start again. */
static void a_break_begins_the_look_again(void **state)
{
    struct lease l;
    struct lease_answer a = {LEASE_OTHERS, 7, NEVER};
    lease_init(&l, TTL_MS * NS_PER_MS);
    for (uint64_t ms = 0; ms < 3 * TTL_MS; ms += TTL_MS - 100) {
        lease_on_store(&l, true, ms * NS_PER_MS);
        assert_int_equal(lease_next(&l, ms * NS_PER_MS), LEASE_LOOK);
        (void)lease_on_answer(&l, &a, ms * NS_PER_MS);
        assert_int_equal(lease_next(&l, (ms + TTL_MS - 200) * NS_PER_MS), LEASE_LOOK);
        (void)lease_on_answer(&l, &a, (ms + TTL_MS - 200) * NS_PER_MS);
        lease_on_store(&l, false, (ms + TTL_MS - 150) * NS_PER_MS);
        assert_false(lease_has_no_end(&l));
    }
}

/* ---- two heads, and one store that acts as the script in store.c does ---- */

struct world {
    struct lease heads[2];
    uint64_t now_ms;
    int owner, last; /* head that has the lease, last head that had it; -1 = none */
    uint64_t term, until_ms;
    uint64_t given; /* highest term that a head serves with */
    uint64_t since_empty_ms;
};

static struct lease_answer store_says(struct world *w, int who, enum lease_question q,
                                      const struct lease *l)
{
    if (w->owner >= 0 && w->now_ms >= w->until_ms)
        w->owner = -1;
    if (w->owner >= 0 && w->owner != who)
        return (struct lease_answer){LEASE_OTHERS, w->term, (int64_t)(w->until_ms - w->now_ms)};
    uint64_t wanted = lease_wanted_term(l);
    if (q == LEASE_RENEW) {
        if (w->owner < 0 && w->last >= 0 && w->last != who)
            return (struct lease_answer){LEASE_GONE, w->term, 0};
        w->term = w->term > wanted ? w->term : wanted;
    } else if (q != LEASE_TAKE || w->term < l->store_term) {
        return (struct lease_answer){w->owner == who ? LEASE_OURS : LEASE_FREE, w->term, 0};
    } else {
        w->term = (w->term > wanted ? w->term : wanted) + 1;
    }
    w->owner = w->last = who;
    w->until_ms = w->now_ms + TTL_MS;
    return (struct lease_answer){LEASE_OURS, w->term, 0};
}

static void turn(struct world *w, int who, struct rng *rng)
{
    struct lease *l = &w->heads[who];
    uint64_t now = w->now_ms * NS_PER_MS;
    enum lease_question q = lease_next(l, now);
    if (q == LEASE_NOTHING)
        return;
    bool done = rng_below(rng, 50) != 0, answered = done && rng_below(rng, 50) != 0;
    struct lease_answer a = {0};
    if (done)
        a = store_says(w, who, q, l);
    switch (lease_on_answer(l, answered ? &a : NULL, now)) {
    case LEASE_SERVE:
        if (l->term <= w->given)
            fail_msg("term %llu was served before", (unsigned long long)l->term);
        if (w->since_empty_ms > 0 && w->now_ms - w->since_empty_ms < TTL_MS)
            fail_msg("taken %llu ms after the store was emptied",
                     (unsigned long long)(w->now_ms - w->since_empty_ms));
        w->given = l->term;
        break;
    case LEASE_RAISE:
        assert_int_equal(w->owner, who);
        w->given = l->term > w->given ? l->term : w->given;
        break;
    case LEASE_STEP_DOWN:
        assert_true(w->last != who);
        lease_init(l, TTL_MS * NS_PER_MS); /* the head's supervisor starts it as a new process */
        lease_on_store(l, true, now);
        break;
    case LEASE_STAY:
        break;
    }
}

static void two_heads(void **state)
{
    uint32_t n_taken = 0; /* worlds in which a head got a term */
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct rng rng = {seed};
        struct world w = {.owner = -1, .last = -1};
        for (int i = 0; i < 2; i++) {
            lease_init(&w.heads[i], TTL_MS * NS_PER_MS);
            lease_on_store(&w.heads[i], true, 0);
        }
        for (int n = 0; n < 2000; n++) {
            int who = (int)rng_below(&rng, 2);
            struct lease *l = &w.heads[who];
            uint32_t dice = (uint32_t)rng_below(&rng, 400);
            w.now_ms += rng_below(&rng, 60);
            if (dice == 0)
                w.now_ms += 3 * TTL_MS; /* no process ran in this time */
            else if (dice < 4)
                lease_on_store(l, dice % 2 == 0, w.now_ms * NS_PER_MS);
            else if (dice == 4 && w.term > 0 &&
                     w.now_ms > w.since_empty_ms + 5 * TTL_MS) /* the store lost its data */
                w = (struct world){.heads = {w.heads[0], w.heads[1]},
                                   .now_ms = w.now_ms,
                                   .owner = -1,
                                   .last = -1,
                                   .since_empty_ms = w.now_ms};
            else if (dice == 5)
                lease_see_term(l, w.given, w.now_ms * NS_PER_MS);
            turn(&w, who, &rng);
        }
        n_taken += w.heads[0].term > 0 || w.heads[1].term > 0;
    }
    assert_int_equal(n_taken, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_a_whole_ttl),
        cmocka_unit_test(an_answer_from_long_ago_is_no_lease),
        cmocka_unit_test(another_has_it),
        cmocka_unit_test(a_break_begins_the_wait_again),
        cmocka_unit_test(a_store_that_stood_still_is_watched_anew),
        cmocka_unit_test(a_take_that_was_done_and_not_answered),
        cmocka_unit_test(goes_on_without_a_store),
        cmocka_unit_test(steps_down),
        cmocka_unit_test(a_peer_has_seen_another_term),
        cmocka_unit_test(nobody_renews_what_does_not_end),
        cmocka_unit_test(another_ttl_is_respected),
        cmocka_unit_test(a_break_begins_the_look_again),
        cmocka_unit_test(two_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
