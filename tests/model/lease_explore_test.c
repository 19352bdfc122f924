/* Explores two heads and their store, in every interleaving. Questions are delayed, or are given
 * up and executed later all the same (Redis did not run). Heads die or do not run for a time,
 * links are cut, a store loses its data. An operator writes the lease or makes it endless, or
 * the store's clock jumps back by hours. head/lease/lease.c is the real code; the store model
 * does the work of store.c's script. These properties hold in every state:
 *   - a head serves with a term above all terms given before, unless the store was emptied;
 *   - two serve at once only when one of them was cut off or did not run, or the store was
 *     emptied;
 *   - without faults, and when a store was emptied or did not run, when the lease has
 *     lost its end or the clock jumped, the lease stays where it is;
 *   - after the last fault, one head serves within five TTLs, and continues.
 * With one fault of each kind at every point every state is visited. With up to eight faults,
 * random walks are taken (COX_LEASE_WALKS: their number). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "tests/model/store_model.h"

enum {
    TICK_MS = 100,
    TTL_TICKS = 6, /* a head asks every second tick */
    SEA_TICKS = 1  /* most ticks that a question or an answer takes to arrive */
};

enum stage { AT_REST, ASKED, ANSWERED };
enum fault {
    CUT = 1,
    STOPPED = 2,
    EMPTIED = 4,
    KILLED = 8,
    FROZEN = 16,
    WRITTEN = 32,
    PERSISTED = 64,
    JUMPED = 128
};

struct head {
    struct lease lease;
    struct store_question question;
    struct lease_answer answer;
    enum stage stage;
    uint32_t age; /* ticks that the question has spent in this stage */
    bool stopped;
};

struct world {
    struct head heads[2];
    struct store_question ghosts[2]; /* questions that the head has given up, but not the store */
    struct store_model store;
    uint64_t now, given;
    uint64_t n_asked[2]; /* number of questions by each head */
    uint32_t n_faults, faults;
};

static uint64_t ns(uint64_t ticks)
{
    return ticks * TICK_MS * NS_PER_MS;
}

/* ---- the heads ---- */

static bool serves(const struct head *h)
{
    return h->lease.state == LEASE_SERVING;
}

static void start(struct world *w, int i)
{
    w->heads[i] = (struct head){0};
    lease_init(&w->heads[i].lease, ns(TTL_TICKS));
    lease_on_store(&w->heads[i].lease, true, ns(w->now));
}

/* Gives up the head's question. The store may still execute it. */
static void give_up(struct world *w, int i)
{
    if (w->heads[i].stage == ASKED)
        w->ghosts[i] = w->heads[i].question;
    w->heads[i].stage = AT_REST;
}

/* Restarts a head. For the store, its successor is another head. */
static void die(struct world *w, int i)
{
    give_up(w, i);
    w->ghosts[i].who = STORE_ANOTHER;
    store_model_die(&w->store, i);
    start(w, i);
}

static void ask(struct world *w, int i)
{
    struct head *h = &w->heads[i];
    if (h->stopped || h->stage != AT_REST)
        return;
    enum lease_question q = lease_next(&h->lease, ns(w->now));
    if (q == LEASE_NOTHING)
        return;
    h->question = (struct store_question){q, i, lease_wanted_term(&h->lease), h->lease.store_term,
                                          ++w->n_asked[i]};
    h->stage = ASKED;
    h->age = 0;
}

/* Delivers an answer. Returns NULL, or the violated property. */
static const char *hear(struct world *w, int i)
{
    struct head *h = &w->heads[i];
    h->stage = AT_REST;
    switch (lease_on_answer(&h->lease, &h->answer, ns(w->now))) {
    case LEASE_SERVE:
        if (h->lease.term <= w->given && !(w->faults & EMPTIED))
            return "a term is given twice";
        if (serves(&w->heads[!i]) && !(w->faults & (CUT | STOPPED | WRITTEN)))
            return "two serve, and neither was cut off";
        if (w->given > 0 && !(w->faults & ~(EMPTIED | FROZEN | PERSISTED | JUMPED)))
            return "the lease moved, and no head had come to harm";
        w->given = h->lease.term > w->given ? h->lease.term : w->given;
        break;
    case LEASE_RAISE:
        if (h->lease.term <= w->given && !(w->faults & EMPTIED))
            return "a term that was given is raised to";
        w->given = h->lease.term > w->given ? h->lease.term : w->given;
        break;
    case LEASE_STEP_DOWN:
        if (!(w->faults & (CUT | STOPPED | WRITTEN)))
            return "a head steps down that nothing has happened to";
        die(w, i);
        break;
    case LEASE_STAY:
        break;
    }
    return NULL;
}

/* ---- what may happen ---- */

/* Names the actions of head 0. The value after each action is the same action of head 1. */
enum action {
    TICK,
    STORE = 2,
    ANSWER = 4,
    SEE = 6,
    HEAL = 8,
    GO_ON = 10,
    GHOST = 12,
    KILL = 14,
    CUT_OFF = 16,
    STAND_STILL = 18,
    LOSE_ALL = 20,
    FREEZE = 21,
    WRITE = 22,
    PERSIST = 23,
    JUMP_BACK = 24,
    N_ACTIONS = 25
};

static bool may_tick(const struct world *w)
{
    for (int i = 0; i < 2; i++)
        if (!w->heads[i].stopped && w->heads[i].stage != AT_REST && w->heads[i].age >= SEA_TICKS)
            return false;
    return true;
}

static void tick(struct world *w)
{
    w->now++;
    store_model_tick(&w->store);
    for (int i = 0; i < 2; i++) {
        w->heads[i].age += w->heads[i].age < SEA_TICKS;
        ask(w, i);
    }
}

/* Stops the store for longer than a lease. Then the store reads the questions that were sent to
 * it. */
static void freeze(struct world *w)
{
    store_model_freeze(&w->store);
    for (int i = 0; i < 2; i++) {
        give_up(w, i);
        if (w->heads[i].lease.is_up) {
            lease_on_store(&w->heads[i].lease, false, ns(w->now));
            lease_on_store(&w->heads[i].lease, true, ns(w->now));
        }
        ask(w, i);
    }
}

/* Changes the store's keys as an outsider would. Returns false when that is not possible here. */
static bool meddle(struct world *w, int action, uint32_t *fault)
{
    if (w->store.owner == STORE_NOBODY && action != WRITE)
        return false;
    if (action == WRITE)
        w->store.owner = STORE_ANOTHER;
    if (action == JUMP_BACK)
        store_model_jump_back(&w->store);
    else
        w->store.owner_left = STORE_ENDLESS;
    *fault = action == WRITE ? WRITTEN : action == PERSIST ? PERSISTED : JUMPED;
    return true;
}

static bool harm(struct world *w, int action)
{
    int i = action % 2;
    struct head *h = &w->heads[i];
    uint32_t fault = EMPTIED;
    if (action < CUT_OFF) {
        die(w, i);
        fault = KILLED;
    } else if (action < STAND_STILL) {
        if (!h->lease.is_up || h->stopped)
            return false;
        give_up(w, i);
        lease_on_store(&h->lease, false, ns(w->now));
        fault = CUT;
    } else if (action < LOSE_ALL) {
        if (h->stopped)
            return false;
        h->stopped = true;
        fault = STOPPED;
    } else if (action == FREEZE) {
        freeze(w);
        fault = FROZEN;
    } else if (action >= WRITE) {
        if (!meddle(w, action, &fault))
            return false;
    } else {
        store_model_lose_all(&w->store);
    }
    w->faults |= fault;
    w->n_faults++;
    return true;
}

/* Performs an action. Returns false when the action is not possible here. */
static bool act(struct world *w, int action, const char **wrong)
{
    int i = action % 2;
    struct head *h = &w->heads[i];
    switch (action < KILL ? action - i : KILL) {
    case TICK:
        if (i == 1 || !may_tick(w))
            return false;
        tick(w);
        return true;
    case STORE:
        if (h->stage != ASKED)
            return false;
        h->answer = store_model_execute(&w->store, &h->question);
        h->stage = ANSWERED;
        h->age = 0;
        return true;
    case ANSWER:
        if (h->stage != ANSWERED || h->stopped)
            return false;
        *wrong = hear(w, i);
        return true;
    case SEE: /* a peer of the other head connects */
        if (!serves(h) || h->stopped || h->lease.term_seen >= w->given || h->lease.term >= w->given)
            return false;
        lease_see_term(&h->lease, w->given, ns(w->now));
        break;
    case HEAL:
        if (h->lease.is_up || h->stopped)
            return false;
        lease_on_store(&h->lease, true, ns(w->now));
        break;
    case GO_ON:
        if (!h->stopped)
            return false;
        h->stopped = false;
        break;
    case GHOST:
        if (w->ghosts[i].what == LEASE_NOTHING)
            return false;
        (void)store_model_execute(&w->store, &w->ghosts[i]);
        w->ghosts[i] = (struct store_question){0};
        return true;
    default:
        return harm(w, action);
    }
    ask(w, i);
    return true;
}

/* ---- after the last fault ---- */

static void settle(struct world *w, const char **wrong)
{
    for (int action = STORE; action < KILL && !*wrong; action++)
        while (!*wrong && act(w, action, wrong))
            ;
}

static const char *check_end(struct world w)
{
    const char *wrong = NULL;
    for (int t = 0; t < 6 * TTL_TICKS && !wrong; t++) {
        settle(&w, &wrong);
        if (!wrong && t >= 5 * TTL_TICKS && serves(&w.heads[0]) + serves(&w.heads[1]) != 1)
            wrong = "all is well, and not one serves";
        if (!wrong)
            tick(&w);
    }
    return wrong;
}

/* ---- exploration ---- */

enum { SET_BITS = 21, QUEUE_MAX = 1 << 20, WALK_FAULTS = 8, WALK_STEPS = 400 };

static uint64_t ticks_from(uint64_t now, uint64_t then_ns)
{
    return then_ns > ns(now) ? (then_ns - ns(now)) / ns(1) : 0;
}

/* Hashes the state. Times count from now and terms relative to each other, because only these
 * decide what can follow. */
static uint64_t fingerprint(const struct world *w)
{
    uint64_t v[56], n = 0;
    for (int i = 0; i < 2; i++) {
        const struct head *h = &w->heads[i];
        const struct lease *l = &h->lease;
        uint64_t watched = w->now - l->watched_ns / ns(1);
        v[n++] = (uint64_t)l->state | (uint64_t)l->is_up << 2 | (uint64_t)l->is_watching << 3 |
                 (uint64_t)l->open << 4 | (uint64_t)h->stage << 8 | (uint64_t)h->stopped << 12;
        v[n++] = l->is_watching ? (watched < TTL_TICKS ? watched : TTL_TICKS) : 0;
        v[n++] = ticks_from(w->now, l->ask_ns);
        v[n++] = l->term << 40 | l->term_seen << 20 | l->store_term;
        uint64_t asked = w->now - l->asked_ns / ns(1);
        v[n++] = h->stage == AT_REST ? 0 : 1 + h->age + (asked < TTL_TICKS ? asked : TTL_TICKS) * 8;
        v[n++] = h->stage == ASKED ? (uint64_t)h->question.what << 40 | h->question.wanted << 20 |
                                         h->question.known
                                   : 0;
        v[n++] = h->stage == ANSWERED ? (uint64_t)h->answer.holder << 20 | h->answer.term : 0;
        v[n++] = w->store.asked_left[i];
        uint64_t since = w->now - l->longer.since_ns / ns(1);
        v[n++] = !l->longer.is ? 0 : 1 + (since < TTL_TICKS ? since : TTL_TICKS);
        v[n++] =
            !l->longer.is ? 0 : (uint64_t)l->longer.begun_ms << 32 ^ (uint64_t)l->longer.left_ms;
    }
    v[n++] = w->store.term << 40 | w->given << 20 | w->store.owner_left;
    v[n++] = (uint64_t)(w->store.owner + 1) << 8 | (uint64_t)(w->store.last + 1);
    v[n++] = w->n_faults << 8 | w->faults;
    for (int i = 0; i < 2; i++) {
        const struct store_question *q = &w->ghosts[i];
        v[n++] = q->what == LEASE_NOTHING ? 0
                                          : (uint64_t)q->what << 48 | (uint64_t)q->who << 40 |
                                                q->wanted << 20 | q->known;
        v[n++] = q->what && q->who != STORE_ANOTHER && w->store.asked_left[i] > 0 &&
                 w->store.asked[i] > q->number;
    }
    return XXH3_64bits(v, n * sizeof *v) | 1;
}

struct search {
    uint64_t *seen; /* array of 1 << SET_BITS hashes; 0 = free */
    struct node {
        struct world world;
        uint32_t parent;
        int action;
    } * nodes;
    uint32_t n;
};

static bool is_new(struct search *s, uint64_t h)
{
    uint64_t at = h >> (64 - SET_BITS);
    while (s->seen[at] && s->seen[at] != h)
        at = (at + 1) & ((1u << SET_BITS) - 1);
    bool is = s->seen[at] == 0;
    s->seen[at] = h;
    return is;
}

static void tell(const struct search *s, uint32_t i, int last, const char *wrong)
{
    int path[4096], n = 0;
    for (uint32_t at = i; at > 0 && n < 4096; at = s->nodes[at].parent)
        path[n++] = s->nodes[at].action;
    while (n > 0)
        print_message("%d ", path[--n]);
    fail_msg("%d: %s (the numbers are enum action's)", last, wrong);
}

static void explore(struct search *s, uint32_t max_faults)
{
    struct world first = {0};
    store_model_init(&first.store, TTL_TICKS, TICK_MS);
    start(&first, 0);
    start(&first, 1);
    s->nodes[s->n++] = (struct node){first, 0, -1};
    is_new(s, fingerprint(&first));
    for (uint32_t i = 0; i < s->n; i++) {
        for (int action = 0; action < N_ACTIONS; action++) {
            struct world w = s->nodes[i].world;
            const char *wrong = NULL;
            if ((action >= KILL && w.n_faults == max_faults) || !act(&w, action, &wrong))
                continue;
            bool seen = !wrong && !is_new(s, fingerprint(&w));
            if (!seen && !wrong)
                wrong = check_end(w);
            if (wrong)
                tell(s, i, action, wrong);
            if (seen)
                continue;
            if (s->n == QUEUE_MAX)
                fail_msg("more than %d states", QUEUE_MAX);
            s->nodes[s->n++] = (struct node){w, i, action};
        }
    }
}

static void every_interleaving_with_a_fault(void **state)
{
    struct search s = {.seen = mem_array((size_t)1 << SET_BITS, sizeof *s.seen),
                       .nodes = mem_array(QUEUE_MAX, sizeof *s.nodes)};
    explore(&s, 1);
    print_message("%u states\n", s.n);
    assert_true(s.n > 100000);
    mem_free(s.seen);
    mem_free(s.nodes);
}

static void walk(uint64_t seed)
{
    struct rng rng = {seed};
    struct world w = {0};
    store_model_init(&w.store, TTL_TICKS, TICK_MS);
    start(&w, 0);
    start(&w, 1);
    for (int n = 0; n < WALK_STEPS; n++) {
        const char *wrong = NULL;
        bool fault = w.n_faults < WALK_FAULTS && rng_below(&rng, 40) == 0;
        int action =
            (int)(fault ? KILL + rng_below(&rng, N_ACTIONS - KILL) : rng_below(&rng, KILL));
        if (act(&w, action, &wrong) && !wrong)
            wrong = check_end(w);
        if (wrong)
            fail_msg("walk %llu, step %d: %s", (unsigned long long)seed, n, wrong);
    }
}

static void walks_with_many(void **state)
{
    const char *n = getenv("COX_LEASE_WALKS");
    for (uint64_t i = 1, end = n ? strtoull(n, NULL, 10) : 1000; i <= end; i++)
        walk(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_interleaving_with_a_fault),
                                       cmocka_unit_test(walks_with_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
