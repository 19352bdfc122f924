/* Tests the rows of tenants: the division of a step's time, block time, names, and the row `other`
 * beyond USAGE_ROWS tenants. usage_check compares the rows with the totals after each part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "head/usage/usage.h"

static struct usage u;

static void check(void)
{
    struct error err;
    if (!usage_check(&u, &err))
        fail_msg("%s", err.text);
}

static const struct usage_row *row_of(uint64_t tenant)
{
    for (uint32_t i = 1; i <= u.n_rows; i++)
        if (u.rows[i].tenant == tenant)
            return &u.rows[i];
    return NULL;
}

static int begin(void **state)
{
    usage_init(&u, 7 * NS_PER_S);
    return 0;
}

static int end(void **state)
{
    check();
    usage_fini(&u);
    return 0;
}

static void test_a_step_is_divided_without_a_rest(void **state)
{
    struct rng rng = {.state = 3};
    struct usage_request q[3] = {0};
    for (uint64_t t = 0; t < 3; t++)
        usage_open(&u, &q[t], 10 + t, STR("t"));
    uint64_t sum = 0;
    for (uint32_t k = 0; k < 2000; k++) {
        uint32_t runs[50], n_runs = 1 + (uint32_t)rng_below(&rng, 50), n_tokens = 0, done = 0;
        for (uint32_t i = 0; i < n_runs; i++)
            n_tokens += runs[i] = rng_below(&rng, 4) ? 1 : 1 + (uint32_t)rng_below(&rng, 8192);
        uint64_t ns = rng_below(&rng, k % 2 ? 100 : 10 * NS_PER_S);
        struct usage_step s = usage_begin_step(&u, ns, n_tokens);
        for (uint32_t i = 0; i < n_runs; i++) {
            uint64_t part = usage_run(&u, &s, q[i % 3].row, runs[i]);
            uint64_t before = (uint64_t)((unsigned __int128)ns * done / n_tokens);
            done += runs[i];
            assert_int_equal(part, (uint64_t)((unsigned __int128)ns * done / n_tokens) - before);
        }
        sum += ns;
        check();
    }
    assert_int_equal(u.totals.step_ns, sum);
    assert_true(row_of(10)->counts.step_ns > 0);
}

static void test_a_step_without_tokens_counts_nothing(void **state)
{
    (void)usage_begin_step(&u, 5, 0);
    assert_int_equal(u.totals.step_ns, 0);
}

static void test_blocks_are_counted_for_the_time_they_are_held(void **state)
{
    struct usage_request a = {0}, b = {0};
    usage_open(&u, &a, 1, STR("a"));
    usage_open(&u, &b, 2, STR("b"));
    usage_hold(&u, &a, 3);
    usage_set_now(&u, 8 * NS_PER_S); /* 3 blocks for 1 s */
    usage_hold(&u, &a, 5);
    usage_hold(&u, &b, 1);
    usage_set_now(&u, 8 * NS_PER_S + 10 * NS_PER_MS); /* 5 and 1 blocks for 10 ms */
    check();
    usage_hold(&u, &a, 0);
    usage_set_now(&u, 9 * NS_PER_S + 10 * NS_PER_MS); /* 0 and 1 blocks for 1 s */
    usage_set_now(&u, 8 * NS_PER_S);                  /* time does not go back */
    assert_int_equal(usage_row_now(&u, row_of(1)).block_ms, 3050);
    assert_int_equal(usage_row_now(&u, row_of(2)).block_ms, 1010);
    assert_int_equal(usage_totals_now(&u).block_ms, 4060);
    assert_int_equal(a.block_ms, 3050);
    assert_int_equal(b.block_ms, 0); /* its own sum is completed by settle, or when blocks change */
    usage_settle(&u, &b);
    assert_int_equal(b.block_ms, 1010);
    usage_close(&u, &b);
    usage_close(&u, &b); /* a second call has no effect */
    assert_int_equal(b.block_ms, 1010);
    assert_int_equal(u.n_blocks, 0);
    assert_int_equal(row_of(2)->n_open, 0);
}

static void test_positions_and_tokens_count_once(void **state)
{
    struct usage_request q = {0}, again = {0};
    usage_open(&u, &q, 1, STR("a"));
    usage_prompt(&u, &q, 32, true);
    usage_prompt(&u, &q, 50, false);
    usage_prompt(&u, &q, 40, false); /* computed again after a preemption */
    usage_prompt(&u, &q, 100, false);
    usage_generated(&u, q.row, 9);
    /* the request had 2 tokens from its gateway, made 9, and begins again with 5 */
    usage_close(&u, &q);
    usage_open_again(&u, &again, 1, STR("a"), &q, 11, 5);
    usage_prompt(&u, &again, 100, false);
    assert_int_equal(usage_skip(&again, 4), 0);
    assert_int_equal(usage_skip(&again, 4), 2);
    assert_int_equal(usage_skip(&again, 4), 4);
    const struct usage_counts *c = &row_of(1)->counts;
    assert_int_equal(c->n_requests, 1);
    assert_int_equal(c->n_cached_tokens, 32);
    assert_int_equal(c->n_prompt_tokens, 68);
    assert_int_equal(c->n_generated_tokens, 9);
    usage_close(&u, &again);
}

static void test_names_are_bounded_and_printable(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"team-a", "team-a"},
        {"", "team-a"}, /* an older gateway: the name stays */
        {"a\nb\x7f\"\\", "a?b?\"\\"},
        {"\xff\xfe", "a?b?\"\\"},
        {"gr\xc3\xbcn\xff", "gr\xc3\xbcn"},
        {"0123456789012345678901234567890123456789012345678901234567890123456789",
         "012345678901234567890123456789012345678901234567890123456789012"},
        {"01234567890123456789012345678901234567890123456789012345678901\xc3\xbc",
         "01234567890123456789012345678901234567890123456789012345678901"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct usage_request q = {0};
        usage_open(&u, &q, 1, str_from(cases[i].in));
        assert_string_equal(row_of(1)->name, cases[i].out);
        usage_close(&u, &q);
    }
}

static void use(uint64_t tenant, uint64_t ns)
{
    struct usage_request q = {0};
    usage_open(&u, &q, tenant, STR("x"));
    usage_prompt(&u, &q, 10, false);
    struct usage_step s = usage_begin_step(&u, ns, 1);
    usage_run(&u, &s, q.row, 1);
    usage_close(&u, &q);
}

static void test_the_least_tenants_share_a_row(void **state)
{
    for (uint64_t t = 1; t <= USAGE_ROWS; t++)
        use(t, t == 500 ? 1 : 1000 + t);
    use(7, 5);
    assert_int_equal(u.n_folded, 0);
    use(5000, 2000); /* takes the row of tenant 500 */
    assert_null(row_of(500));
    assert_int_equal(u.n_rows, USAGE_ROWS);
    assert_int_equal(u.rows[0].counts.n_requests, 1);
    assert_int_equal(u.rows[0].counts.step_ns, 1);
    use(500, 3000); /* takes the row of tenant 33: the first 32 have series and keep their rows */
    assert_null(row_of(33));
    assert_non_null(row_of(1));
    assert_int_equal(row_of(500)->counts.step_ns, 3000);
    assert_int_equal(u.n_folded, 2);
    check();
    struct usage_counts rest = usage_rest_now(&u);
    for (uint64_t t = 1; t <= USAGE_SERIES; t++)
        rest.step_ns += row_of(t)->counts.step_ns;
    assert_int_equal(rest.step_ns, u.totals.step_ns);
    assert_int_equal(u.totals.n_requests, USAGE_ROWS + 3);
}

static void test_a_tenant_with_open_requests_keeps_its_row(void **state)
{
    static struct usage_request q[USAGE_ROWS];
    memset(q, 0, sizeof q);
    for (uint64_t t = 0; t < USAGE_ROWS; t++)
        usage_open(&u, &q[t], 1 + t, STR(""));
    struct usage_request late = {0};
    usage_open(&u, &late, 9999, STR("late"));
    usage_hold(&u, &late, 2);
    assert_null(row_of(9999));
    assert_int_equal(late.row, 0);
    assert_string_equal(u.rows[0].name, "");
    assert_int_equal(u.rows[0].n_open, 1);
    check();
    usage_close(&u, &late);
    usage_close(&u, &q[700]);
    usage_open(&u, &late, 9999, STR("late"));
    assert_non_null(row_of(9999));
    assert_null(row_of(701));
    usage_close(&u, &late);
}

/* A step in flight has the handle of a tenant whose row was given away meanwhile. */
static void test_a_late_step_charges_no_other_tenant(void **state)
{
    for (uint64_t t = 1; t <= USAGE_ROWS; t++)
        use(t, 1000);
    struct usage_request q = {0};
    usage_open(&u, &q, 900, STR("x"));
    uint32_t handle = q.row;
    usage_close(&u, &q);
    for (uint64_t t = 1; t <= USAGE_ROWS; t++)
        use(t, t == 900 ? 0 : 1000);
    use(77777, 5);
    assert_null(row_of(900));
    struct usage_step s = usage_begin_step(&u, 40, 1);
    usage_run(&u, &s, handle, 1);
    usage_generated(&u, handle, 1);
    assert_int_equal(row_of(77777)->counts.step_ns, 5);
    assert_int_equal(u.rows[0].counts.step_ns, 1040);
    assert_int_equal(u.rows[0].counts.n_generated_tokens, 1);
}

/* Plays many tenants with requests that overlap, in a random order. */
static void test_nothing_is_lost_among_many_tenants(void **state)
{
    enum { OPEN = 300, TENANTS = 3000 };
    static struct usage_request q[OPEN];
    memset(q, 0, sizeof q);
    struct rng rng = {.state = 11};
    uint64_t now = 7 * NS_PER_S, n_opened = 0;
    for (uint32_t k = 0; k < 40000; k++) {
        struct usage_request *x = &q[rng_below(&rng, OPEN)];
        usage_set_now(&u, now += rng_below(&rng, 3 * NS_PER_MS));
        if (!x->is_open) {
            *x = (struct usage_request){0};
            usage_open(&u, x, rng_below(&rng, TENANTS), STR("x"));
            n_opened++;
        }
        usage_hold(&u, x, (uint32_t)rng_below(&rng, 100));
        usage_prompt(&u, x, (uint32_t)rng_below(&rng, 2000), rng_below(&rng, 2));
        usage_generated(&u, x->row, (uint32_t)rng_below(&rng, 5));
        struct usage_step s = usage_begin_step(&u, rng_below(&rng, 1000), 1);
        usage_run(&u, &s, x->row, 1);
        if (rng_below(&rng, 3) == 0)
            usage_close(&u, x);
        if (k % 64 == 0)
            check();
    }
    assert_int_equal(u.totals.n_requests, n_opened);
    assert_true(u.n_folded > 1000);
    for (uint32_t i = 0; i < OPEN; i++)
        usage_close(&u, &q[i]);
    assert_int_equal(u.n_blocks, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        T(test_a_step_is_divided_without_a_rest),
        T(test_a_step_without_tokens_counts_nothing),
        T(test_blocks_are_counted_for_the_time_they_are_held),
        T(test_positions_and_tokens_count_once),
        T(test_names_are_bounded_and_printable),
        T(test_the_least_tenants_share_a_row),
        T(test_a_tenant_with_open_requests_keeps_its_row),
        T(test_a_late_step_charges_no_other_tenant),
        T(test_nothing_is_lost_among_many_tenants),
    };
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
