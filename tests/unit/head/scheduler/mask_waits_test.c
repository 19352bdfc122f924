/* Tests that rows that wait for their masks get their turn, with random tenants, costs,
 * arrivals, devices and block tables. Each test plays a scheduler (`scheduler_bed.h`) whose
 * results report random costs of masks. Invariants: some row runs whenever one can, each tenant
 * gets its part of the time, and none takes more. Times are in units of 0.1 us. All tests run on
 * one thread. */
#include "common/base/random.h"
#include "head/scheduler/state.h"
#include "tests/unit/head/scheduler/scheduler_bed.h"

enum { MAX_TENANTS = 6, UNIT_NS = 100, NS_MS = 1000000, DEAREST = 1000000 };

struct play {
    struct bed b;
    struct rng rng;
    struct answer answers[2]; /* answers of the steps in flight, oldest first */
    uint32_t n_answers;
    uint64_t time;                      /* sum of all results, in units */
    uint64_t given;                     /* part of `time` for masks */
    uint64_t spent[MAX_TENANTS];        /* time of each tenant's masks */
    uint64_t since[MAX_REQUESTS];       /* time of each row's last token */
    uint64_t longest_wait[MAX_TENANTS]; /* longest time between two tokens of a row */
    uint32_t cost_of[MAX_TENANTS];      /* largest cost of one mask */
    uint32_t n_rows[MAX_TENANTS];
};

static void play_open(struct play *p, const struct scheduler_config *c, uint64_t seed)
{
    *p = (struct play){0};
    p->rng.state = seed;
    open_bed(&p->b, c);
}

static void arrive(struct play *p, uint32_t tenant, bool masked, uint32_t max_tokens)
{
    struct bed *b = &p->b;
    struct msg_submit m = submit(b, 4 + (uint32_t)rng_below(&p->rng, 20), max_tokens);
    m.tenant = tenant;
    if (masked) {
        m.sampling.grammar_kind = GRAMMAR_REGEX;
        m.sampling.grammar = (struct str){"a*", 2};
    }
    struct request *r = make(b, &m);
    p->since[b->n_requests - 1] = p->time;
    assert_int_equal(scheduler_add(b->s, r), STATUS_OK);
}

static uint32_t of_slot(const struct bed *b, uint32_t slot)
{
    for (uint32_t i = 0; i < b->n_requests; i++) {
        const struct seq *x = b->requests[i]->sched;
        if (x && x->place == SEQ_RUNNING && x->slot == slot)
            return i;
    }
    fail_msg("slot %u is nobody's", slot);
    return 0;
}

static void take(struct play *p, uint32_t i, uint32_t units)
{
    uint32_t tenant = (uint32_t)p->b.requests[i]->tenant;
    uint64_t waited = p->time - p->since[i];
    p->since[i] = p->time;
    p->spent[tenant] += units;
    if (p->b.requests[i]->sampling.grammar_kind != GRAMMAR_NONE && waited > p->longest_wait[tenant])
        p->longest_wait[tenant] = waited;
}

/* Plans a step. Returns false when there is no plan. */
static bool plan(struct play *p, uint64_t plain_ns)
{
    const struct msg_plan *plan = step(&p->b);
    if (!plan)
        return false;
    struct answer *a = &p->answers[p->n_answers++];
    uint64_t sum = 0;
    answer(plan, OTHER_ID, a);
    for (uint32_t i = 0; i < a->m.n_items; i++) {
        uint32_t at = of_slot(&p->b, a->items[i].slot);
        const struct request *r = p->b.requests[at];
        uint32_t most = p->cost_of[r->tenant];
        if (r->sampling.grammar_kind == GRAMMAR_NONE)
            most = 0;
        a->items[i].mask_units = most ? 1 + (uint32_t)rng_below(&p->rng, most) : 0;
        sum += a->items[i].mask_units;
        take(p, at, a->items[i].mask_units);
    }
    a->m.execute_ns = plain_ns + sum * UNIT_NS;
    uint64_t took = a->m.execute_ns / UNIT_NS;
    p->time += took;
    p->given += took / 3 > MASK_SHARES_LEAST ? took / 3 : MASK_SHARES_LEAST;
    return true;
}

static void give_oldest(struct play *p)
{
    assert_true(p->n_answers > 0);
    p->answers[0].m.items = p->answers[0].items;
    for (uint32_t i = 0; i < p->answers[0].m.n_items; i++)
        p->answers[0].items[i].ids.ptr = &p->answers[0].token;
    give(&p->b, &p->answers[0]);
    p->answers[0] = p->answers[1];
    p->n_answers--;
}

static struct scheduler_config drawn_config(struct rng *rng)
{
    struct scheduler_config c = config(8 + (uint32_t)rng_below(rng, 60));
    c.max_num_seqs = 1 + (uint32_t)rng_below(rng, 24);
    c.max_num_batched_tokens = 32 + (uint32_t)rng_below(rng, 256);
    c.max_waiting = MAX_REQUESTS;
    c.depth = 1 + (uint32_t)rng_below(rng, 2);
    c.enable_prefix_caching = rng_below(rng, 2);
    return c;
}

/* Some row always runs, even with debts beyond the bound, results without a time, and too few
 * blocks. */
static void nothing_stands_still(void **state)
{
    static const uint32_t costs[] = {0, 10, 3000, 200000, DEAREST, 1000000000};
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct play p;
        struct rng rng = {seed};
        struct scheduler_config c = drawn_config(&rng);
        play_open(&p, &c, seed);
        for (uint32_t i = 0; i < MAX_TENANTS; i++)
            p.cost_of[i] = costs[rng_below(&rng, 6)];
        uint64_t plain_ns = rng_below(&rng, 3) * 5 * NS_MS;
        while (p.b.n_requests < MAX_REQUESTS || p.b.s->n_seqs > 0) {
            if (p.b.n_requests < MAX_REQUESTS && rng_below(&rng, 3) == 0)
                arrive(&p, (uint32_t)rng_below(&rng, MAX_TENANTS), rng_below(&rng, 4) > 0,
                       1 + (uint32_t)rng_below(&rng, 40));
            bool sent = plan(&p, plain_ns);
            if (!sent && p.n_answers == 0 && p.b.s->n_seqs > 0)
                fail_msg("seed %llu: nothing runs, and requests are there",
                         (unsigned long long)seed);
            if (p.n_answers > 0 && (p.n_answers == c.depth || !sent))
                give_oldest(&p);
        }
        for (uint32_t i = 0; i < p.b.n_requests; i++)
            assert_int_equal(p.b.requests[i]->finish, FINISH_LENGTH);
        close_bed(&p.b);
    }
}

/* Adds all rows of the tenants. The masks of some tenants are cheap, so no row waits for them.
 * The masks of the others are expensive, and their rows always wait. */
static void arrive_all(struct play *p, uint32_t n_tenants)
{
    for (uint32_t t = 1; t <= n_tenants; t++) {
        bool dear = rng_below(&p->rng, 2);
        p->cost_of[t] = dear ? DEAREST : 20000 + (uint32_t)rng_below(&p->rng, 300000);
        p->n_rows[t] = 1 + (uint32_t)rng_below(&p->rng, 8);
        for (uint32_t i = 0; i < p->n_rows[t]; i++)
            arrive(p, t, true, 1000);
    }
}

/* Each tenant gets the time that its rows need, or its part of a third. Together the tenants
 * take no more than this third, their savings and the overdraft of one step. No row waits for
 * ever. */
static void check_parts(const struct play *p, uint32_t n_tenants, uint64_t n_steps,
                        uint64_t plain_units)
{
    uint64_t spent = 0, over = 0;
    for (uint32_t t = 1; t <= n_tenants; t++) {
        uint64_t one_step = 2ull * p->n_rows[t] * p->cost_of[t];
        uint64_t wanted = n_steps * p->n_rows[t] * p->cost_of[t] / 2 * 9 / 10;
        uint64_t part = p->given / n_tenants;
        spent += p->spent[t];
        over += MASK_SHARES_SAVED + one_step;
        assert_true(p->spent[t] + one_step >= (wanted < part ? wanted : part));
        assert_true(p->longest_wait[t] <=
                    3 * n_tenants * (one_step + MASK_SHARES_OWED) + 2 * plain_units);
    }
    assert_true(spent <= p->given + over);
}

/* Row 0 of tenant 0 has no grammar, so it runs in every step. */
static void all_have_their_part(void **state)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct play p;
        struct rng rng = {seed};
        struct scheduler_config c = config(4096);
        c.max_num_seqs = c.max_waiting = MAX_REQUESTS;
        c.max_num_batched_tokens = 4096;
        c.depth = 1 + (uint32_t)rng_below(&rng, 2);
        play_open(&p, &c, seed);
        uint32_t n_tenants = 1 + (uint32_t)rng_below(&rng, 4);
        uint64_t plain_ns = (1 + rng_below(&rng, 40)) * NS_MS, n_steps = 0;
        arrive(&p, 0, false, 1000);
        arrive_all(&p, n_tenants);
        for (; p.b.requests[0]->finish == FINISH_NONE; n_steps++)
            if (!plan(&p, plain_ns) || p.n_answers == c.depth)
                give_oldest(&p);
        assert_in_range(n_steps, 1000, 1010);
        check_parts(&p, n_tenants, n_steps, plain_ns / UNIT_NS);
        while (p.n_answers > 0)
            give_oldest(&p);
        close_bed(&p.b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_stands_still),
        cmocka_unit_test(all_have_their_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
