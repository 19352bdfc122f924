/* Tests the number of decodes of each tenant in a step. The first tests call `row_shares` with
 * fixed costs of a step. The tests below "with the scheduler" pass a scheduler
 * (`scheduler_bed.h`) requests, and results whose times are computed from the rows of each plan.
 * Invariants: no stream is slower than if the tenants took turns on the replica, all rows get
 * their turn, and some row always runs. All tests run on one thread. */
#include "common/base/clock.h"
#include "common/base/random.h"
#include "head/budget/row_shares.h"
#include "head/scheduler/state.h"
#include "tests/unit/head/scheduler/scheduler_bed.h"

enum { MAX_TENANTS = 6 };
#define MS 1e6

static struct step_budget costs(double pass_ms, double sampled_ms)
{
    return (struct step_budget){.target_ns = 250 * NS_PER_MS,
                                .pass_ns = pass_ms * MS,
                                .sampled_ns = sampled_ms * MS,
                                .token_ns = sampled_ms * MS};
}

/* Plans one step with n[i] decodes that could run in each share. `ran` counts how often each row
 * ran. Returns the number of decodes that ran. */
static uint32_t one_step(struct row_shares *m, const struct step_budget *b, const uint32_t *n,
                         uint32_t (*ran)[256])
{
    uint32_t sum = 0;
    row_shares_plan(m, b, 1, false);
    row_shares_begin_step(m);
    for (uint16_t i = 0; i < 2; i++)
        for (uint32_t k = 0; k < n[i]; k++) {
            bool may = row_shares_may_run(m, i);
            ran[i][k] += may;
            sum += may;
        }
    row_shares_end_step(m);
    return sum;
}

static struct row_shares two_tenants(const uint32_t *n)
{
    struct row_shares m = {0};
    for (uint64_t t = 0; t < 2; t++)
        for (uint32_t k = 0; k < n[t]; k++)
            assert_int_equal(row_shares_enter(&m, 100 + t), t);
    return m;
}

/* A step of two tenants may take 2 * (4 + 2 * 16) = 72 ms. 34 decodes fit into that time in each
 * step, the first one included. */
static void run_34(const uint32_t *inside, const uint32_t *n, int n_steps, uint32_t (*ran)[256])
{
    struct step_budget b = costs(4, 2);
    struct row_shares m = two_tenants(inside);
    assert_int_equal(one_step(&m, &b, n, ran), 34);
    memset(ran, 0, 2 * sizeof *ran);
    for (int i = 0; i < n_steps; i++)
        assert_int_equal(one_step(&m, &b, n, ran), 34);
    assert_int_equal(m.longest_ns, 72 * NS_PER_MS);
    row_shares_fini(&m);
}

static void many_streams_wait_for_few(void **state)
{
    const uint32_t n[2] = {16, 200};
    static uint32_t ran[2][256];
    run_34(n, n, 1000, ran);
    for (uint32_t k = 0; k < n[0]; k++)
        assert_int_equal(ran[0][k], 1000);
    for (uint32_t k = 0; k < n[1]; k++)
        assert_in_range(ran[1][k], 89, 91); /* 18 of the 200 rows run in each step */
}

/* A tenant gets its share as soon as it has prompts to compute. Otherwise its prompts would run
 * in steps with all decodes of the other tenant, and its first tokens would be as slow. */
static void prompts_have_a_share(void **state)
{
    const uint32_t inside[2] = {16, 200}, n[2] = {0, 200};
    static uint32_t ran[2][256];
    run_34(inside, n, 10, ran);
}

/* Plans the step after a step of n[i] decodes in each share. Prompts wait for the planned step,
 * and the second tenant already computes a prompt if `one_runs`. */
static struct row_shares plan_with_prompts(struct step_budget b, const uint32_t *inside,
                                           const uint32_t *n, bool one_runs)
{
    static uint32_t ran[2][256];
    struct row_shares m = two_tenants(inside);
    if (one_runs)
        row_shares_prompt(&m, 1, true);
    (void)one_step(&m, &b, n, ran);
    row_shares_plan(&m, &b, 1, true);
    return m;
}

/* The tenant with the fewest decodes misses no step while the other tenant's prompts wait too.
 * Those prompts count as the other tenant's rows. 34 rows fit into 72 ms, and the prompts take
 * the time of 9 of them. */
static void prompts_count_as_their_tenants(void **state)
{
    const uint32_t inside[2] = {16, 60}, n[2] = {16, 40};
    struct row_shares m = plan_with_prompts(costs(4, 2), inside, n, true);
    assert_true(m.limits);
    assert_int_equal(m.all[0].n_may, 16);
    assert_int_equal(m.all[1].n_may, 9);
    assert_int_equal(m.n_rows, 25);
    assert_int_equal(m.longest_ns, 72 * NS_PER_MS);
    row_shares_fini(&m);
}

/* No decode is held back while the decodes fit into a third of the target of 250 ms, which is 83
 * ms. 17 decodes take 4 + 17 * 3.5 = 63.5 ms. */
static void few_more_hold_nobody_back(void **state)
{
    const uint32_t inside[2] = {16, 20}, n[2] = {16, 1};
    struct row_shares m = plan_with_prompts(costs(4, 3.5), inside, n, false);
    assert_false(m.limits);
    /* A quarter of the step is left for prompts. */
    assert_in_range(m.longest_ns, 84 * NS_PER_MS, 85 * NS_PER_MS);
    row_shares_fini(&m);
}

/* Prompts that end in one step can bring a hundred new decodes into the next step. Only 34 of
 * all decodes may run, and the 16 earlier ones are among them. */
static void many_that_come_at_once_wait_for_a_step(void **state)
{
    const uint32_t before[2] = {16, 1}, n[2] = {16, 101};
    static uint32_t ran[2][256];
    struct step_budget b = costs(4, 2);
    struct row_shares m = two_tenants(n);
    for (int i = 0; i < 3; i++)
        assert_int_equal(one_step(&m, &b, before, ran), 17);
    memset(ran, 0, sizeof ran);
    uint32_t n_ran = one_step(&m, &b, n, ran);
    assert_in_range(n_ran, 17, 34);
    for (uint32_t k = 0; k < n[0]; k++)
        assert_int_equal(ran[0][k], 1);
    assert_int_equal(one_step(&m, &b, n, ran), 34);
    row_shares_fini(&m);
}

/* A step has no limits while it takes less than a quarter of the target. It also has no limits
 * without a target, with unknown costs or with one tenant alone. */
static void nothing_is_limited_without_need(void **state)
{
    const uint32_t few[2] = {1, 20}, many[2] = {1, 200}, alone[2] = {0, 200};
    static uint32_t ran[2][256];
    struct step_budget b = costs(4, 2), free = costs(4, 2), unknown = {.target_ns = 1};
    free.target_ns = 0;
    struct row_shares m = two_tenants(few);
    for (int i = 0; i < 3; i++)
        assert_int_equal(one_step(&m, &b, few, ran), 21);
    (void)one_step(&m, &free, many, ran); /* the new decodes count from this step on */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(one_step(&m, &free, many, ran), 201);
        assert_int_equal(one_step(&m, &unknown, many, ran), 201);
    }
    /* 29 rows fit into 62.5 ms, a quarter of the target. */
    assert_int_equal(one_step(&m, &b, many, ran), 29);
    row_shares_leave(&m, 0);
    assert_int_equal(one_step(&m, &b, alone, ran), 200);
    row_shares_fini(&m);
}

static void more_tenants_than_it_counts_are_not_limited(void **state)
{
    struct row_shares m = {0};
    for (uint64_t t = 0; t < ROW_SHARES_MOST; t++)
        assert_int_equal(row_shares_enter(&m, t), t);
    assert_int_equal(row_shares_enter(&m, ROW_SHARES_MOST), ROW_SHARE_NONE);
    assert_true(row_shares_may_run(&m, ROW_SHARE_NONE));
    row_shares_leave(&m, ROW_SHARE_NONE);
    row_shares_leave(&m, 7);
    assert_int_equal(row_shares_enter(&m, ROW_SHARES_MOST), 7);
    row_shares_fini(&m);
}

/* ---- with the scheduler ---- */

struct play {
    struct bed b;
    struct rng rng;
    double pass_ms, sampled_ms, ms;
    uint32_t tokens[MAX_TENANTS];
};

static void arrive(struct play *p, uint32_t tenant, uint32_t max_tokens)
{
    struct msg_submit m = submit(&p->b, 4, max_tokens);
    m.tenant = tenant;
    assert_int_equal(scheduler_add(p->b.s, make(&p->b, &m)), STATUS_OK);
}

static const struct request *of_slot(const struct bed *b, uint32_t slot)
{
    for (uint32_t i = 0; i < b->n_requests; i++) {
        const struct seq *x = b->requests[i]->sched;
        if (x && x->place == SEQ_RUNNING && x->slot == slot)
            return b->requests[i];
    }
    fail_msg("slot %u is nobody's", slot);
    return NULL;
}

/* Plans a step and answers it with the time that its rows cost. Returns false when there is no
 * plan. */
static bool play_step(struct play *p)
{
    struct answer a;
    const struct msg_plan *plan = step(&p->b);
    if (!plan)
        return false;
    uint32_t n_tokens = 0;
    for (uint32_t i = 0; i < plan->n_runs; i++)
        n_tokens += plan->runs[i].n_tokens;
    answer(plan, OTHER_ID, &a);
    for (uint32_t i = 0; i < a.m.n_items; i++)
        p->tokens[of_slot(&p->b, a.items[i].slot)->tenant]++;
    double ms = p->pass_ms + p->sampled_ms * n_tokens;
    a.m.execute_ns = (uint64_t)(ms * MS);
    p->ms += ms;
    give(&p->b, &a);
    return true;
}

/* Plans a step and answers it. A row with logits costs `sampled_ms`, any other row a hundredth
 * of it. Returns the step's time in milliseconds. */
static double step_of_costs(struct play *p)
{
    struct answer a;
    const struct msg_plan *plan = step(&p->b);
    assert_non_null(plan);
    double ms = p->pass_ms;
    uint32_t n_drafted = 0, n_tokens = 0;
    for (uint32_t i = 0; i < plan->n_runs; i++) {
        const struct plan_run *r = &plan->runs[i];
        bool scored = of_slot(&p->b, r->slot)->sampling.n_prompt_logprobs >= 0;
        uint32_t n_sampled = scored ? r->n_tokens : r->sample + r->n_draft;
        ms += p->sampled_ms * (n_sampled + 0.01 * (r->n_tokens + r->n_draft - n_sampled));
        n_drafted += r->n_draft;
        n_tokens += r->n_tokens + r->n_draft;
    }
    assert_in_range(n_tokens, 1, p->b.s->c.max_num_batched_tokens);
    answer(plan, OTHER_ID, &a);
    a.m.n_drafted = n_drafted;
    a.m.execute_ns = (uint64_t)(ms * MS);
    give(&p->b, &a);
    return ms;
}

/* Returns a configuration with slots and blocks for all requests of a bed, in steps of at most
 * `n_rows` rows. */
static struct scheduler_config wide(uint32_t n_blocks, uint32_t n_rows, uint64_t target_ms)
{
    struct scheduler_config c = config(n_blocks);
    c.max_num_seqs = c.max_waiting = MAX_REQUESTS;
    c.max_num_batched_tokens = n_rows;
    c.step_target_ns = target_ms * NS_PER_MS;
    return c;
}

static void open_play(struct play *p, uint64_t seed, uint32_t n_blocks, uint64_t target_ms)
{
    struct scheduler_config c = wide(n_blocks, 4096, target_ms);
    *p = (struct play){.rng = {seed}};
    p->pass_ms = 1 + (double)rng_below(&p->rng, 40);
    p->sampled_ms = 0.1 + (double)rng_below(&p->rng, 50) / 10;
    open_bed(&p->b, &c);
}

static uint32_t arrive_all(struct play *p, uint32_t *n_rows)
{
    uint32_t n_tenants = 2 + (uint32_t)rng_below(&p->rng, 3), n_left = MAX_REQUESTS;
    for (uint32_t t = 0; t < n_tenants; t++) {
        uint32_t most = t + 1 < n_tenants ? n_left / 2 : n_left;
        n_rows[t] = 1 + (uint32_t)rng_below(&p->rng, most);
        n_left -= n_rows[t];
        for (uint32_t i = 0; i < n_rows[t]; i++)
            arrive(p, t, 900);
    }
    return n_tenants;
}

/* Each tenant gets at least as many tokens a second as its part of the time would give it alone,
 * except where all steps are short enough. */
static void nobody_is_slower_than_by_turns(void **state)
{
    uint32_t n_slow = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct play p;
        uint32_t n_rows[MAX_TENANTS] = {0};
        double target_ms = 20 + (double)(seed * 37 % 400);
        open_play(&p, seed, 8192, (uint64_t)target_ms);
        uint32_t n_tenants = arrive_all(&p, n_rows);
        for (int i = 0; i < 100; i++)
            assert_true(play_step(&p));
        memset(p.tokens, 0, sizeof p.tokens);
        p.ms = 0;
        for (int i = 0; i < 600; i++)
            assert_true(play_step(&p));
        bool quick = p.ms / 600 <= target_ms / 4;
        n_slow += !quick;
        for (uint32_t t = 0; t < n_tenants; t++) {
            double alone = n_rows[t] / (p.pass_ms + p.sampled_ms * n_rows[t]);
            double part = p.tokens[t] / p.ms / (alone / n_tenants);
            if (!quick && part < 0.85)
                fail_msg("seed %d: tenant %u of %u has %.2f of its part", (int)seed, t, n_tenants,
                         part);
        }
        close_bed(&p.b);
    }
    assert_true(n_slow > 20);
}

/* Some row always runs, even with few blocks, short targets and results without a time. */
static void nothing_stands_still(void **state)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct play p;
        open_play(&p, seed, 8 + seed % 60, 1 + seed % 50);
        if (seed % 5 == 0)
            p.pass_ms = p.sampled_ms = 0;
        while (p.b.n_requests < MAX_REQUESTS || p.b.s->n_seqs > 0) {
            if (p.b.n_requests < MAX_REQUESTS && rng_below(&p.rng, 3) == 0)
                arrive(&p, (uint32_t)rng_below(&p.rng, MAX_TENANTS),
                       1 + (uint32_t)rng_below(&p.rng, 40));
            if (!play_step(&p) && p.b.s->n_seqs > 0)
                fail_msg("seed %d: nothing runs, and requests are there", (int)seed);
        }
        close_bed(&p.b);
    }
}

/* Short prompts cost mainly their last rows, because those are sampled. A hundred short prompts
 * of one tenant do not make another tenant's step four times as long. A prompt token costs next
 * to nothing here. */
static void short_prompts_cost_their_samples(void **state)
{
    struct scheduler_config c = wide(4096, 4096, 100);
    struct play p = {.pass_ms = 4, .sampled_ms = 2};
    open_bed(&p.b, &c);
    for (uint32_t i = 0; i < 4; i++)
        arrive(&p, 1, 900);
    /* the sizes differ, so that the scheduler learns the three costs */
    for (int i = 0; i < 200; i++) {
        if (i % 20 == 10 && p.b.n_requests < 10)
            arrive(&p, 1, 4 + p.b.n_requests);
        assert_true(step_of_costs(&p) > 0);
    }
    while (p.b.n_requests < MAX_REQUESTS)
        arrive(&p, 2, 8);
    double longest = 0;
    for (int i = 0; i < 60; i++) {
        double ms = step_of_costs(&p);
        longest = ms > longest ? ms : longest;
    }
    /* a step may take a third of the target, plus 20 % for uncertain costs */
    if (longest > 1.2 * 100 / 3)
        fail_msg("a step of %.0f ms beside 4 decodes of 12 ms", longest);
    close_bed(&p.b);
}

static void arrive_scored(struct play *p, uint32_t n_prompt, bool scored)
{
    struct msg_submit m = submit(&p->b, n_prompt, 1);
    m.tenant = 2;
    m.sampling.n_prompt_logprobs = scored ? 0 : -1;
    assert_int_equal(scheduler_add(p->b.s, make(&p->b, &m)), STATUS_OK);
}

/* Rows of prompts with prompt_logprobs cost as much as sampled rows, because all of them have
 * logits. Where nothing else runs, a step has as many of them as its target holds. */
static void prompt_logprobs_cost_their_logits(void **state)
{
    struct scheduler_config c = wide(4096, 4096, 400);
    struct play p = {.pass_ms = 4, .sampled_ms = 2};
    open_bed(&p.b, &c);
    for (uint32_t i = 0; i < 12; i++) /* 190 rows fit into 400 ms, but only 64 rows run at first */
        arrive_scored(&p, 1000, true);
    double longest = 0, ms = 0;
    for (int i = 0; i < 40; i++) {
        double step_ms = step_of_costs(&p);
        longest = step_ms > longest ? step_ms : longest;
        ms += i < 20 ? 0 : step_ms;
    }
    assert_in_range(longest, 300, 440);
    assert_in_range(ms / 20, 300, 420);
    for (uint32_t i = 0; i < 20; i++)
        arrive(&p, 1, 900);
    for (uint32_t i = 0; i < 12; i++)
        arrive_scored(&p, 100, i % 3 == 2); /* every third prompt has prompt_logprobs */
    longest = 0;
    for (int i = 0; i < 60; i++) {
        ms = step_of_costs(&p);
        longest = ms > longest && i >= 20 ? ms : longest;
    }
    /* a step may take a quarter of the target, or 2 * 44 ms for two tenants */
    if (longest > 1.1 * 100)
        fail_msg("a step of %.0f ms beside 20 decodes of 44 ms", longest);
    close_bed(&p.b);
}

static double gap_beside_many(bool one_waits)
{
    struct scheduler_config c = wide(8000, 4096, 100);
    c.max_num_seqs = 63;
    struct play p = {.pass_ms = 4, .sampled_ms = 2};
    open_bed(&p.b, &c);
    for (uint32_t i = 0; i < 63; i++)
        arrive(&p, i < 8 ? 1 : 2, 900);
    for (int i = 0; i < 220; i++) {
        if (i == 200 && one_waits)
            arrive(&p, 1, 900); /* no slot is free for this request */
        assert_true(play_step(&p));
    }
    memset(p.tokens, 0, sizeof p.tokens);
    p.ms = 0;
    for (int i = 0; i < 300; i++)
        assert_true(play_step(&p));
    double gap = p.ms / (p.tokens[1] / 8.0);
    close_bed(&p.b);
    return gap;
}

/* Two tenants that take turns have a gap of 40 ms between tokens. A request that only waits runs
 * no row, so it takes nothing from its tenant's share. */
static void who_waits_takes_no_rows(void **state)
{
    assert_in_range(gap_beside_many(false) * 10, 0, 430);
    assert_in_range(gap_beside_many(true) * 10, 0, 430);
}

/* The rows of a plan limit the step here, and its time does not. Each row with logits counts as
 * one row: three prompts of 1000 tokens run in steps of 256 rows. */
static void rows_and_time_are_two_bounds(void **state)
{
    struct scheduler_config c = wide(8000, 256, 1000);
    struct play p = {.pass_ms = 4, .sampled_ms = 1};
    open_bed(&p.b, &c);
    for (uint32_t i = 0; i < 8; i++)
        arrive(&p, 1, 900);
    for (int i = 0; i < 300; i++) { /* these steps are enough to learn the costs */
        if (i % 10 == 5 && p.b.n_requests < 30)
            arrive_scored(&p, 4 + 20 * p.b.n_requests % 300, i % 20 == 5);
        (void)step_of_costs(&p);
    }
    for (int k = 0; k < 3; k++)
        arrive_scored(&p, 1000, true);
    const struct request *last = p.b.requests[p.b.n_requests - 1];
    int n = 0;
    for (; last->sched && n < 1000; n++)
        (void)step_of_costs(&p);
    assert_in_range(n, 10, 20);
    close_bed(&p.b);
}

/* Twenty long prompts of one tenant, with logits on every row, do not hold up a short prompt.
 * `tenant` is the owner of the short prompt. */
static void hold_up(uint32_t tenant)
{
    struct scheduler_config c = wide(8000, 2048, 250);
    c.long_prefill_token_threshold = 256;
    c.max_partial_prefills = 8;
    struct play p = {.pass_ms = 4, .sampled_ms = 6};
    open_bed(&p.b, &c);
    for (uint32_t i = 0; i < 16; i++)
        arrive(&p, 1, 900);
    for (int i = 0; i < 100; i++)
        (void)step_of_costs(&p);
    for (int k = 0; k < 20; k++)
        arrive_scored(&p, 1000, true);
    for (int i = 0; i < 3; i++)
        (void)step_of_costs(&p);
    arrive(&p, tenant, 4);
    const struct request *newcomer = p.b.requests[p.b.n_requests - 1];
    int n = 0;
    for (; newcomer->sched && n < 1000; n++)
        (void)step_of_costs(&p);
    /* Without shares of time, the first token alone took 467 steps, and 1407 for tenant 1. */
    assert_in_range(n, 4, 20);
    close_bed(&p.b);
}

static void long_prompts_hold_up_no_newcomer(void **state)
{
    hold_up(3);
    hold_up(1); /* tenant 1 already has 16 streams */
}

static void add_long(struct play *p, uint64_t tenant, uint32_t n_prompt, uint32_t n_generated)
{
    struct msg_submit m = submit(&p->b, n_prompt, 1024 - n_prompt);
    m.ids.n = n_prompt + n_generated;
    m.tenant = tenant;
    struct request *r = make(&p->b, &m);
    for (uint32_t i = 0; i < r->n_ids; i++)
        r->ids[i] = 1000 + 37 * p->b.n_requests + i; /* no two requests share a prefix */
    assert_int_equal(scheduler_add(p->b.s, r), STATUS_OK);
}

/* A decode has five rows here. Resumed streams get the rest of the step's token budget. That
 * rest once underflowed to 4 billion tokens where row shares limited the step. */
static void drafts_and_losses_stay_within_a_plan(void **state)
{
    struct scheduler_config c = wide(8000, 2048, 250);
    c.n_draft = 4;
    c.long_prefill_token_threshold = 256;
    struct play p = {.pass_ms = 20, .sampled_ms = 2};
    open_bed(&p.b, &c);
    for (uint64_t i = 0; i < 24; i++)
        add_long(&p, i < 4 ? 1 : 2, 4, 0);
    for (int i = 0; i < 40; i++)
        assert_true(step_of_costs(&p) > 0);
    for (int i = 0; i < 8; i++)
        add_long(&p, 1, 1000, 0);
    (void)step_of_costs(&p);
    for (int i = 0; i < 20; i++)
        add_long(&p, 1, 500, 400);
    for (int i = 0; i < 8; i++)
        (void)step_of_costs(&p);
    close_bed(&p.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_streams_wait_for_few),
        cmocka_unit_test(prompts_have_a_share),
        cmocka_unit_test(prompts_count_as_their_tenants),
        cmocka_unit_test(few_more_hold_nobody_back),
        cmocka_unit_test(many_that_come_at_once_wait_for_a_step),
        cmocka_unit_test(drafts_and_losses_stay_within_a_plan),
        cmocka_unit_test(short_prompts_cost_their_samples),
        cmocka_unit_test(prompt_logprobs_cost_their_logits),
        cmocka_unit_test(who_waits_takes_no_rows),
        cmocka_unit_test(rows_and_time_are_two_bounds),
        cmocka_unit_test(long_prompts_hold_up_no_newcomer),
        cmocka_unit_test(nothing_is_limited_without_need),
        cmocka_unit_test(more_tenants_than_it_counts_are_not_limited),
        cmocka_unit_test(nobody_is_slower_than_by_turns),
        cmocka_unit_test(nothing_stands_still),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
