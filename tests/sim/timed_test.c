/* Tests a replica in virtual time: the arrival process, the cost model, and our policy and
 * vLLM's. Each test makes timed_config values from seeds and runs them (timed_run), which checks
 * every property on the way. The tests compare the reports and bound their times. All numbers
 * are virtual, so a failure repeats on every machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "tests/sim/timed.h"

static struct timed_config small_world(uint64_t seed)
{
    struct timed_config c = {
        .load = {.seed = seed,
                 .duration_ns = 20 * NS_PER_S,
                 .max_model_len = 2048,
                 .tenants = {{.name = "chat",
                              .per_second = 4,
                              .prompt = LOAD_SHAREGPT_PROMPT,
                              .answer = LOAD_SHAREGPT_ANSWER}},
                 .n_tenants = 1},
        .cost = cost_h200_8b,
        .scheduler = {.max_num_batched_tokens = 512,
                      .max_num_seqs = 32,
                      .max_waiting = 10000,
                      .max_model_len = 2048,
                      .depth = 2,
                      .enable_prefix_caching = true,
                      .n_kv_groups = 1,
                      .kv_groups = {{.kind = KV_FULL,
                                     .block_tokens = 16,
                                     .bytes_per_block = 1,
                                     .n_blocks = 2000}}},
        .check_every = 1,
    };
    c.cost.accept_percent = 50;
    return c;
}

static void lengths_have_the_means_of_sharegpt(void **state)
{
    struct timed_config c = small_world(1);
    c.load.tenants[0].per_second = 1000;
    c.load.tenants[0].prompt.longest = c.load.tenants[0].answer.longest = 100000;
    c.load.max_model_len = 1000000;
    struct load *l = load_new(&c.load);
    double prompt = 0.0, answer = 0.0;
    for (uint32_t i = 0; i < l->n; i++) {
        prompt += l->requests[i].n_prompt;
        answer += l->requests[i].n_answer;
        assert_true(i == 0 || l->requests[i - 1].arrival_ns <= l->requests[i].arrival_ns);
    }
    assert_in_range(l->n, 19000, 21000);
    assert_in_range((uint64_t)(prompt / l->n), 150, 172);
    assert_in_range((uint64_t)(answer / l->n), 325, 350);
    load_free(l);
}

static void lay_out(struct timed_config *c, struct rng *rng)
{
    struct load_tenant *t = c->load.tenants;
    c->load.n_tenants = 1 + (uint32_t)rng_below(rng, 4);
    for (uint32_t i = 0; i < c->load.n_tenants; i++) {
        t[i] = (struct load_tenant){.per_second = 0.5 + (double)rng_below(rng, 30) / 10,
                                    .priority = (int32_t)rng_below(rng, 2),
                                    .prompt = {1.0 + (double)rng_below(rng, 200), 1.0, 300},
                                    .answer = {1.0 + (double)rng_below(rng, 200), 0.8, 300},
                                    .cancel_permille = (uint32_t)rng_below(rng, 200),
                                    .deadline_permille = (uint32_t)rng_below(rng, 100),
                                    .deadline_ms = 1 + (uint32_t)rng_below(rng, 3000),
                                    .n_choices = 1 + (uint32_t)rng_below(rng, 4)};
        if (rng_below(rng, 2)) {
            t[i].n_system_prompts = 1 + (uint32_t)rng_below(rng, 3);
            t[i].system_tokens = (uint32_t)rng_below(rng, 300);
        }
    }
    if (rng_below(rng, 2)) { /* one tenant floods the queue */
        t[0].burst_every_ns = 4 * NS_PER_S;
        t[0].burst = 50 + (uint32_t)rng_below(rng, 100);
    }
    struct scheduler_config *s = &c->scheduler;
    uint32_t one = c->load.max_model_len / 16;
    s->depth = 1 + (uint32_t)rng_below(rng, 2);
    s->max_num_seqs = 1 + (uint32_t)rng_below(rng, 32);
    s->max_num_batched_tokens = s->max_num_seqs * 6 + (uint32_t)rng_below(rng, 300);
    s->max_partial_prefills = (uint32_t)rng_below(rng, 3);
    s->n_draft = rng_below(rng, 2) ? (uint32_t)rng_below(rng, 5) : 0;
    s->enable_prefix_caching = rng_below(rng, 5) > 0;
    s->kv_groups[0].n_blocks = one + 2 + (uint32_t)rng_below(rng, rng_below(rng, 2) ? 16 : 8 * one);
    if (rng_below(rng, 3) == 0)
        c->loss_every_ns = (1 + rng_below(rng, 4)) * NS_PER_S;
}

static struct timed_config draw_world(uint64_t seed)
{
    struct rng rng = {seed};
    struct timed_config c = small_world(seed);
    c.load.max_model_len = c.scheduler.max_model_len = 1024;
    c.load.duration_ns = 10 * NS_PER_S;
    lay_out(&c, &rng);
    return c;
}

/* Returns the steps that suffice when each step brings the first request in order of service
 * forward, by a token or by a chunk of its remaining work. This is the meaning of "no livelock".
 * Two steps are added for blocks that steps in flight still use. */
static uint64_t steps_one_by_one(const struct timed_config *c)
{
    struct load *l = load_new(&c->load);
    const struct scheduler_config *s = &c->scheduler;
    uint64_t n = 0, chunk = s->max_num_batched_tokens - s->max_num_seqs * (1 + s->n_draft) + 1;
    for (uint32_t i = 0; i < l->n; i++) {
        const struct load_request *r = &l->requests[i];
        n += (r->n_prompt + r->n_answer + chunk - 1) / chunk + r->n_answer + 2;
    }
    load_free(l);
    return n;
}

static void run(const struct timed_config *c, const struct policy_ops *policy,
                struct timed_report *r)
{
    struct error err;
    if (!timed_run(c, policy, r, &err))
        fail_msg("%s", err.text);
}

static void every_world_ends(void **state)
{
    enum { N_WORLDS = 60 };
    uint32_t n_ends[TIMED_REFUSED + 1] = {0};
    uint64_t n_preemptions = 0;
    for (uint64_t seed = 1; seed <= N_WORLDS; seed++) {
        struct timed_config c = draw_world(seed);
        struct timed_report r;
        run(&c, &policy_cox, &r);
        if (!c.loss_every_ns && r.n_steps > steps_one_by_one(&c))
            fail_msg("seed %llu: %llu steps, one by one %llu", (unsigned long long)seed,
                     (unsigned long long)r.n_steps, (unsigned long long)steps_one_by_one(&c));
        n_preemptions += r.n_preemptions;
        for (uint32_t i = 0; i < r.n; i++)
            n_ends[r.outcomes[i].end]++;
        timed_report_fini(&r);
    }
    assert_int_equal(n_ends[TIMED_OPEN], 0);
    assert_true(n_ends[TIMED_DONE] > 3000 && n_ends[TIMED_CANCELLED] > 200);
    assert_true(n_ends[TIMED_TIMEOUT] > 50 && n_preemptions > 100);
}

/* Tests worlds made for thrashing: the pool holds one sequence of full length, and dozens want
 * to grow to this length. All must end, in no more steps than one by one, and the pool must then
 * be empty. */
static void a_pool_for_one_sequence_serves_many(void **state)
{
    uint64_t n_preemptions = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct timed_config c = small_world(seed);
        c.load.duration_ns = NS_PER_S;
        c.load.max_model_len = c.scheduler.max_model_len = 512;
        c.load.tenants[0] = (struct load_tenant){.burst_every_ns = NS_PER_S,
                                                 .burst = 40,
                                                 .prompt = {8, 1.0, 200},
                                                 .answer = {seed % 2 ? 312 : 200, 0, 312}};
        c.scheduler.depth = 1 + seed % 2;
        c.scheduler.max_num_seqs = 16;
        c.scheduler.max_num_batched_tokens = 16 * (1 + (uint32_t)seed) + 16;
        c.scheduler.enable_prefix_caching = seed % 3 > 0;
        c.scheduler.n_draft = seed % 4 == 0 ? 4 : 0;
        c.scheduler.kv_groups[0].n_blocks = 512 / 16 + (uint32_t)seed % 3;
        struct timed_report r;
        run(&c, &policy_cox, &r);
        assert_true(r.n_steps <= steps_one_by_one(&c));
        n_preemptions += r.n_preemptions;
        timed_report_fini(&r);
    }
    assert_true(n_preemptions > 500);
}

/* Below its capacity, a replica keeps no request waiting. A request's time is bounded by the
 * time that it takes alone. (Steps of 32 rows and some prompt tokens instead of one row take
 * less than three times as long.) */
static void requests_end_in_time_below_capacity(void **state)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct timed_config c = small_world(seed);
        struct timed_report r;
        c.load.tenants[0].per_second = 2;
        run(&c, &policy_cox, &r);
        for (uint32_t i = 0; i < r.n; i++) {
            struct cost_work alone = {.n_decodes = 1, .n_context = 2048};
            uint64_t takes = r.outcomes[i].last_ns - r.outcomes[i].arrival_ns;
            uint64_t steps = r.outcomes[i].n_tokens + 4;
            assert_int_equal(r.outcomes[i].end, TIMED_DONE);
            assert_true(takes < 3 * steps * cost_step_ns(&c.cost, &alone));
        }
        timed_report_fini(&r);
    }
}

/* vLLM's policy ends every request too, with the same arrivals, costs, deadlines and losses. */
static void the_other_policy_ends_everything_too(void **state)
{
    uint32_t n_ends[TIMED_REFUSED + 1] = {0};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct timed_config c = draw_world(seed);
        struct timed_report r;
        c.by_priority = seed % 2;
        run(&c, &policy_vllm, &r);
        for (uint32_t i = 0; i < r.n; i++)
            n_ends[r.outcomes[i].end]++;
        timed_report_fini(&r);
    }
    assert_int_equal(n_ends[TIMED_OPEN], 0);
    assert_true(n_ends[TIMED_DONE] > 1000 && n_ends[TIMED_TIMEOUT] > 10 && n_ends[TIMED_LOST] > 10);
}

/* Our requests continue after a loss with the tokens they have. vLLM's policy loses the requests
 * that it has then, and no later requests. */
static void requests_outlive_a_rank(void **state)
{
    static const struct policy_ops *const policies[] = {&policy_cox, &policy_vllm};
    for (int p = 0; p < 2; p++) {
        struct timed_config c = small_world(3);
        struct timed_report r;
        uint32_t n_lost = 0;
        c.loss_every_ns = 5 * NS_PER_S;
        run(&c, policies[p], &r);
        for (uint32_t i = 0; i < r.n; i++) {
            assert_true(r.outcomes[i].end == TIMED_DONE || r.outcomes[i].end == TIMED_LOST);
            n_lost += r.outcomes[i].end == TIMED_LOST;
        }
        assert_true(p == 0 ? n_lost == 0 : n_lost > 5 && n_lost < r.n / 2);
        timed_report_fini(&r);
    }
}

/* Tests requests with a deadline that no request can meet, and with a deadline that all meet.
 * With a policy that has no deadlines, the client disconnects. */
static void deadlines_end_requests_in_time(void **state)
{
    static const struct policy_ops *const policies[] = {&policy_cox, &policy_vllm};
    static const uint32_t deadlines_ms[] = {20, 100000};
    for (int k = 0; k < 4; k++) {
        struct timed_config c = small_world(4);
        struct timed_report r;
        uint32_t n_late = 0;
        c.load.tenants[0].deadline_permille = 1000;
        c.load.tenants[0].deadline_ms = deadlines_ms[k / 2];
        c.load.tenants[0].answer = (struct load_lengths){50, 0, 50};
        run(&c, policies[k % 2], &r);
        for (uint32_t i = 0; i < r.n; i++)
            n_late += r.outcomes[i].end == TIMED_TIMEOUT;
        assert_int_equal(n_late, k < 2 ? r.n : 0);
        timed_report_fini(&r);
    }
}

/* When no request delays another, both policies run the same steps, also with draft tokens, and
 * accept the same number of draft tokens. (Arrivals in the same step may count in the next
 * step.) */
static void drafts_are_right_for_both_alike(void **state)
{
    static const uint32_t percents[] = {0, 60, 100};
    uint64_t n_steps[3];
    for (int k = 0; k < 3; k++) {
        struct timed_config c = small_world(5);
        struct timed_report a, b;
        c.cost.accept_percent = percents[k];
        c.scheduler.n_draft = 3;
        c.load.tenants[0].per_second = 1;
        run(&c, &policy_cox, &a);
        run(&c, &policy_vllm, &b);
        n_steps[k] = a.n_steps;
        assert_in_range(a.n_steps, b.n_steps - 2, b.n_steps + 2);
        timed_report_fini(&a);
        timed_report_fini(&b);
    }
    assert_true(n_steps[1] < n_steps[0] * 3 / 4 && n_steps[2] < n_steps[0] / 2);
}

/* Makes a flood: one tenant sends hundreds of requests at once, and other tenants send one now
 * and then. While a tenant waits, no other tenant of its class may get many more tokens than it:
 * at most those of the slots at its arrival, plus a few turns of the queue. With a single queue
 * for all tenants, the flood would be served first. */
static struct timed_config draw_flood(uint64_t seed)
{
    struct timed_config c = small_world(seed);
    struct load_tenant *t = c.load.tenants;
    uint32_t longest = 100 + (uint32_t)seed * 20;
    c.load.n_tenants = 2 + (uint32_t)seed % 3;
    for (uint32_t i = 0; i < c.load.n_tenants; i++)
        t[i] = (struct load_tenant){.per_second = 0.5,
                                    .prompt = {longest / 4.0, 1.0, longest / 2},
                                    .answer = {longest / 4.0, 1.0, longest / 2}};
    t[0].burst_every_ns = 5 * NS_PER_S;
    t[0].burst = 400;
    c.scheduler.max_num_seqs = 4 + (uint32_t)seed % 7;
    c.scheduler.depth = 1 + (uint32_t)seed % 2;
    c.check_every = 256; /* the check visits all waiting requests */
    c.fair_share_tokens = (uint64_t)(c.scheduler.max_num_seqs + 4) * longest;
    return c;
}

static void a_flood_starves_nobody(void **state)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct timed_config c = draw_flood(seed);
        struct timed_report r;
        run(&c, &policy_cox, &r);
        timed_report_fini(&r);
        c.fair_share_tokens = 0;
        run(&c, &policy_vllm, &r);
        assert_true(r.worst_share_tokens > 5 * draw_flood(seed).fair_share_tokens);
        timed_report_fini(&r);
    }
}

static void a_seed_repeats(void **state)
{
    for (uint64_t seed = 7; seed < 10; seed++) {
        struct timed_config c = draw_world(seed);
        struct timed_report a, b;
        run(&c, &policy_cox, &a);
        run(&c, &policy_cox, &b);
        assert_true(a.n == b.n && a.end_ns == b.end_ns && a.n_steps == b.n_steps);
        assert_memory_equal(a.outcomes, b.outcomes, a.n * sizeof *a.outcomes);
        timed_report_fini(&a);
        timed_report_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_have_the_means_of_sharegpt),
        cmocka_unit_test(every_world_ends),
        cmocka_unit_test(a_pool_for_one_sequence_serves_many),
        cmocka_unit_test(requests_end_in_time_below_capacity),
        cmocka_unit_test(the_other_policy_ends_everything_too),
        cmocka_unit_test(requests_outlive_a_rank),
        cmocka_unit_test(deadlines_end_requests_in_time),
        cmocka_unit_test(drafts_are_right_for_both_alike),
        cmocka_unit_test(a_flood_starves_nobody),
        cmocka_unit_test(a_seed_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
