/* Tests the step budget's promise over random speed curves of two families (budget_curve.h), and
 * the curves themselves. COX_BUDGET_CURVES=10000 runs more of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/sim/budget_run.h"

enum { CURVES = 150 };

struct sums {
    uint32_t n_curves, n_curves_late, n_curves_slow;
    uint64_t n_gaps, n_late, n_long, n_long_slow;
};

static uint32_t n_curves(void)
{
    const char *n = getenv("COX_BUDGET_CURVES");
    return n ? (uint32_t)strtoul(n, NULL, 10) : CURVES;
}

static struct sums run_family(enum budget_family family)
{
    static struct budget_curve c;
    static struct budget_report r;
    struct sums s = {.n_curves = n_curves()};
    for (uint64_t seed = 1; seed <= s.n_curves; seed++) {
        budget_curve_draw(&c, family, seed);
        budget_run(&c, seed, &r);
        s.n_gaps += r.n_gaps;
        s.n_late += r.n_late;
        s.n_curves_late += r.n_late * 100ull > r.n_gaps;
        s.n_curves_slow += r.took_ns > 1.5 * r.best_ns;
        s.n_long += r.n_long;
        for (uint32_t i = 0; i < r.n_long; i++)
            s.n_long_slow += r.ratios[i] > 1.5;
        if (r.took_ns > 6 * r.best_ns)
            fail_msg("family %d, seed %u: prompts take %g of the best share's time", (int)family,
                     (unsigned)seed, r.took_ns / r.best_ns);
    }
    return s;
}

static void the_promise_holds(void **state)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        struct sums s = run_family((enum budget_family)f);
        print_message("family %d: %u curves, %llu of %llu gaps late, %u curves late, %u slow, "
                      "%llu of %llu long prompts slow\n",
                      f, s.n_curves, (unsigned long long)s.n_late, (unsigned long long)s.n_gaps,
                      s.n_curves_late, s.n_curves_slow, (unsigned long long)s.n_long_slow,
                      (unsigned long long)s.n_long);
        assert_true(s.n_gaps > 500ull * s.n_curves);
        assert_true(s.n_long > 3ull * s.n_curves);
        assert_true(s.n_late * 100 <= s.n_gaps);
        assert_true(s.n_curves_late * 15 <= s.n_curves);
        assert_true(s.n_curves_slow * 33 <= s.n_curves);
    }
}

static void a_quota_lets_pass_its_share(void **state)
{
    static struct budget_curve c;
    const struct budget_rows rows = {.n_prompt = 3};
    budget_curve_draw(&c, FAMILY_WIDE, 1);
    c.n_segments = 1;
    c.roof = c.power = 1;
    c.attend_ns = 0;
    c.pass_ns = 1e6;
    c.prompt_ns = 3e6;
    c.period_ns = 100e6;
    c.quota = 0.04;
    /* With 4 ms in each 100 ms, 10 ms of work run as 4, 4 and 2 ms. */
    assert_true(budget_curve_end(&c, 300e6, rows) == 502e6);
    assert_true(budget_curve_end(&c, 350e6, rows) > 602e6 - 1);
}

static void the_rule_is_continuous(void **state)
{
    const double t = BUDGET_TARGET_NS;
    assert_true(budget_rule_prompt_ns(0) == t);
    for (double d = 0; d < 10 * t; d += t / 1000) {
        double p = budget_rule_prompt_ns(d), next = budget_rule_prompt_ns(d + t / 1000);
        assert_true(next - p < t / 400 && p - next < t / 400);
        assert_true(p >= (d + p) / 4 * 0.999);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_promise_holds),
        cmocka_unit_test(a_quota_lets_pass_its_share),
        cmocka_unit_test(the_rule_is_continuous),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
