/* Tests the report of `cox bench`: percentiles, figures of a load with known times, the printed
 * table, lists in options, and the times at which requests are sent. The input is an array of
 * `struct bench_result`. The output is a `struct bench_metrics` or text. Invariant: percentiles
 * equal NumPy's. */
#include "cli/bench/report/metrics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/bench/arrivals.h"
#include "cli/bench/report/plot.h"
#include "cli/bench/report/report.h"
#include "common/base/clock.h"

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * (1 + fabs(b));
}

/* The expected values are numpy.percentile of the same lists. */
static void test_percentiles(void **state)
{
    static double one[] = {7}, four[] = {4, 1, 3, 2}, ten[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 100};
    const struct {
        double *values;
        size_t n;
        double p, want;
    } cases[] = {
        {NULL, 0, 50, 0},     {one, 1, 0, 7},          {one, 1, 99, 7},    {four, 4, 0, 1},
        {four, 4, 50, 2.5},   {four, 4, 25, 1.75},     {four, 4, 100, 4},  {ten, 10, 90, 18.1},
        {ten, 10, 99, 91.81}, {ten, 10, 99.9, 99.181}, {ten, 10, 10, 1.9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bench_series s = {cases[i].values, cases[i].n};
        bench_series_sort(&s);
        double got = bench_percentile(&s, cases[i].p);
        if (!near(got, cases[i].want))
            fail_msg("case %zu: P%g is %.12g, not %.12g", i, cases[i].p, got, cases[i].want);
    }
    struct bench_series s = {four, 4};
    struct bench_spread r = bench_spread(&s);
    assert_true(near(r.mean, 2.5) && near(r.median, 2.5) && near(r.std, sqrt(1.25)));
}

static void test_floats_as_python(void **state)
{
    static const struct {
        double v;
        const char *want;
    } cases[] = {{3, "3.0"},     {100, "100.0"},     {0.5, "0.5"},
                 {0.1, "0.1"},   {HUGE_VAL, "inf"},  {0, "0.0"},
                 {2.25, "2.25"}, {1e6, "1000000.0"}, {1.0 / 3, "0.3333333333333333"}};
    char out[64];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(bench_float_text(out, sizeof out, cases[i].v), cases[i].want);
}

static void test_lists(void **state)
{
    struct error err = {0};
    double p[BENCH_PERCENTILES_MAX];
    struct bench_goodput g = {0};
    unsigned mask;
    size_t n;
    assert_int_equal(bench_percentiles_parse("50,90, 99.9", p, &n, &err), STATUS_OK);
    assert_true(n == 3 && near(p[2], 99.9));
    static const char *const wrong[] = {"101", "-1", "x", "50,,90", "50 90"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (bench_percentiles_parse(wrong[i], p, &n, &err) == STATUS_OK)
            fail_msg("%s was taken", wrong[i]);
    assert_int_equal(bench_metrics_parse("ttft,e2el", &mask, &err), STATUS_OK);
    assert_int_equal(mask, 1u << BENCH_TTFT | 1u << BENCH_E2EL);
    assert_int_equal(bench_metrics_parse("ttft,speed", &mask, &err), STATUS_INVALID);
    assert_int_equal(bench_goodput_parse(&g, "ttft:200", &err), STATUS_OK);
    assert_true(g.is_given && near(g.limit_ms[BENCH_TTFT], 200));
    static const char *const pairs[] = {"ttft", "ttft:", "ttft:-1", "itl:5", "x:1", ":1"};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        assert_int_equal(bench_goodput_parse(&g, pairs[i], &err), STATUS_INVALID);
}

/* Three requests are successful and one has failed. Two answers have the first token after 100
 * ms and then one token each 10 ms. One answer has a single token, one second later. */
static uint64_t gaps[] = {10 * NS_PER_MS, 10 * NS_PER_MS, 10 * NS_PER_MS};
static const struct bench_result results[] = {
    {.ok = true,
     .start_ns = 0,
     .first_ns = 100 * NS_PER_MS,
     .end_ns = 130 * NS_PER_MS,
     .gaps_ns = gaps,
     .n_gaps = 3,
     .n_prompt_tokens = 10,
     .n_output_tokens = 4},
    /* the error text ends with a UTF-8 character that was cut in half */
    {.error = "no\xC3", .n_prompt_tokens = 1000},
    {.ok = true,
     .start_ns = 1000 * NS_PER_MS,
     .first_ns = 300 * NS_PER_MS,
     .end_ns = 1300 * NS_PER_MS,
     .n_prompt_tokens = 20,
     .n_output_tokens = 1},
};

static const char table[] = "============ Serving Benchmark Result ============\n"
                            "Successful requests:                     2         \n"
                            "Failed requests:                         1         \n"
                            "Maximum request concurrency:             8         \n"
                            "Request rate configured (RPS):           3.00      \n"
                            "Benchmark duration (s):                  2.00      \n"
                            "Total input tokens:                      30        \n"
                            "Total generated tokens:                  5         \n"
                            "Request throughput (req/s):              1.00      \n"
                            "Request goodput (req/s):                 0.50      \n"
                            "Output token throughput (tok/s):         2.50      \n"
                            "Peak output token throughput (tok/s):    4.00      \n"
                            "Peak concurrent requests:                1.00      \n"
                            "Total token throughput (tok/s):          17.50     \n"
                            "---------------Time to First Token----------------\n"
                            "Mean TTFT (ms):                          200.00    \n"
                            "Median TTFT (ms):                        200.00    \n"
                            "P99 TTFT (ms):                           298.00    \n"
                            "-----Time per Output Token (excl. 1st token)------\n"
                            "Mean TPOT (ms):                          10.00     \n"
                            "Median TPOT (ms):                        10.00     \n"
                            "P99 TPOT (ms):                           10.00     \n"
                            "---------------Inter-token Latency----------------\n"
                            "Mean ITL (ms):                           10.00     \n"
                            "Median ITL (ms):                         10.00     \n"
                            "P99 ITL (ms):                            10.00     \n"
                            "----------------End-to-end Latency----------------\n"
                            "Mean E2EL (ms):                          215.00    \n"
                            "Median E2EL (ms):                        215.00    \n"
                            "P99 E2EL (ms):                           298.30    \n"
                            "==================================================\n";

static void test_a_load(void **state)
{
    struct bench_metrics m;
    const struct bench_goodput g = {.limit_ms = {[BENCH_TTFT] = 200}, .is_given = true};
    const struct bench_report r = {.m = &m,
                                   .shown = (1u << BENCH_METRIC_COUNT) - 1,
                                   .percentiles = {99},
                                   .n_percentiles = 1,
                                   .request_per_s = 3,
                                   .max_concurrency = 8,
                                   .has_goodput = true};
    char *text = NULL;
    size_t len = 0;
    bench_metrics_compute(&m, results, 3, 2, &g);
    FILE *f = open_memstream(&text, &len);
    bench_report_print(&r, f);
    fclose(f);
    assert_string_equal(text, table);
    free(text);
    json_t *j = bench_report_json(&r, results, 3);
    assert_true(near(json_real_value(json_object_get(j, "p99_e2el_ms")), 298.3));
    assert_true(near(json_real_value(json_object_get(j, "std_ttft_ms")), 100));
    assert_int_equal(json_integer_value(json_object_get(j, "total_output_tokens")), 5);
    json_t *itls = json_object_get(j, "itls"), *errors = json_object_get(j, "errors");
    assert_int_equal(json_array_size(itls), 3);
    assert_int_equal(json_array_size(json_array_get(itls, 0)), 3);
    assert_int_equal(json_array_size(errors), 3);
    assert_string_equal(json_string_value(json_array_get(errors, 1)), "no");
    json_decref(j);
    bench_metrics_fini(&m);
}

static void test_peaks(void **state)
{
    static const struct {
        uint64_t spans[4][2]; /* begin and end of each request, in ms */
        uint32_t open, pieces;
    } cases[] = {
        {{{0, 10}, {10, 20}, {20, 30}, {30, 40}}, 1, 4},
        {{{0, 10}, {9, 20}, {5, 30}, {10, 40}}, 3, 4},
        {{{0, 5000}, {1000, 2000}, {1500, 4500}, {1999, 2001}}, 4, 3},
        {{{7, 9}, {7, 9}, {7, 9}, {9, 9}}, 3, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bench_result r[4] = {0};
        struct bench_metrics m;
        const struct bench_goodput g = {0};
        for (int k = 0; k < 4; k++) {
            uint64_t from = cases[i].spans[k][0] * NS_PER_MS, to = cases[i].spans[k][1] * NS_PER_MS;
            r[k] = (struct bench_result){.ok = true, .start_ns = from, .end_ns = to};
        }
        bench_metrics_compute(&m, r, 4, 1, &g);
        if (m.peak_concurrent != cases[i].open || !near(m.peak_output_per_s, cases[i].pieces))
            fail_msg("case %zu: %u open, %g pieces", i, m.peak_concurrent, m.peak_output_per_s);
        bench_metrics_fini(&m);
    }
}

static void test_nothing_succeeded(void **state)
{
    struct bench_metrics m;
    const struct bench_goodput g = {0};
    bench_metrics_compute(&m, &results[1], 1, 1, &g);
    assert_int_equal(m.n_failed, 1);
    assert_true(near(bench_percentile(&m.series[BENCH_TTFT], 99), 0) && near(m.total_per_s, 0));
    bench_metrics_fini(&m);
}

/* Every value is in exactly one bin. The last bin holds the values above P99. */
static void test_histograms(void **state)
{
    static double one[] = {5}, same[] = {3, 3, 3}, all[201];
    struct bench_histogram h;
    bench_histogram_make(&h, &(struct bench_series){NULL, 0});
    assert_int_equal(h.n_bins, 0);
    bench_histogram_make(&h, &(struct bench_series){one, 1});
    assert_true(h.n_bins == 1 && h.counts[0] == 1 && h.counts[1] == 0 && h.most == 1);
    bench_histogram_make(&h, &(struct bench_series){same, 3});
    assert_true(h.n_bins == 1 && h.counts[0] == 3);
    for (int i = 0; i <= 200; i++)
        all[i] = i;
    bench_histogram_make(&h, &(struct bench_series){all, 201});
    assert_true(h.n_bins == BENCH_BINS && near(h.from_ms, 0) && near(h.width_ms, 9.9));
    /* the last bin has the values 199 and 200, since P99 is 198 */
    assert_int_equal(h.counts[BENCH_BINS], 2);
    uint32_t n = 0;
    for (uint32_t i = 0; i <= h.n_bins; i++)
        n += h.counts[i];
    assert_int_equal(n, 201);
    assert_int_equal(h.counts[0], 10);
    assert_int_equal(h.counts[BENCH_BINS - 1], 10); /* this bin has the values 189 to 198 */
}

static void test_plots(void **state)
{
    struct bench_metrics m;
    struct strbuf b;
    char *text = NULL;
    size_t len = 0;
    const struct bench_goodput g = {0};
    bench_metrics_compute(&m, results, 3, 2, &g);
    FILE *f = open_memstream(&text, &len);
    bench_plot_text(&m, 1u << BENCH_ITL, 31, f);
    fclose(f);
    assert_string_equal(text,
                        "Inter-token Latency (ms), 3 values\n      10.00        3 ██████████\n");
    free(text);
    strbuf_init(&b, 0);
    bench_plot_svg(&m, 1u << BENCH_ITL | 1u << BENCH_TTFT, "a<b & c", &b);
    assert_non_null(strstr(b.ptr, "<title>a&lt;b &amp; c</title>"));
    assert_non_null(strstr(b.ptr, ">TTFT</text>"));
    assert_null(strstr(b.ptr, ">TPOT</text>"));
    assert_non_null(strstr(b.ptr, "<title>from 10.00 ms: 3</title>"));
    strbuf_fini(&b);
    bench_metrics_fini(&m);
}

/* The arrival times ascend, and the last of n is near n / rate. The squared coefficient of
 * variation of a gamma distribution is 1 / shape. */
static void test_arrivals(void **state)
{
    enum { N = 20000 };
    static double at[N];
    static const double shapes[] = {0.25, 1, 4, HUGE_VAL};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct bench_arrivals a = {.per_s = 50, .burstiness = shapes[i]};
        struct rng r = {7};
        double sum = 0, squares = 0, before = 0;
        bench_arrivals_draw(&a, &r, N, at);
        assert_true(near(at[N - 1], N / 50.0));
        for (int k = 0; k < N; k++) {
            double gap = at[k] - before;
            assert_true(gap >= 0);
            sum += gap;
            squares += gap * gap;
            before = at[k];
        }
        double mean = sum / N, variation = (squares / N - mean * mean) / (mean * mean);
        if (fabs(variation - 1 / shapes[i]) > 0.1 / (shapes[i] < 1 ? shapes[i] : 1))
            fail_msg("shape %g: variation %g", shapes[i], variation);
    }
    const struct bench_arrivals all = {.per_s = HUGE_VAL, .burstiness = 1};
    const struct bench_arrivals ramp = {.per_s = HUGE_VAL,
                                        .burstiness = HUGE_VAL,
                                        .ramp = BENCH_RAMP_LINEAR,
                                        .ramp_from = 10,
                                        .ramp_to = 20};
    struct rng r = {7};
    bench_arrivals_draw(&all, &r, 3, at);
    assert_true(at[0] == 0 && at[2] == 0);
    bench_arrivals_draw(&ramp, &r, 3, at);
    assert_true(near(at[0], 1 / 10.0) && near(at[2], 1 / 10.0 + 1 / 15.0 + 1 / 20.0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles), cmocka_unit_test(test_floats_as_python),
        cmocka_unit_test(test_lists),       cmocka_unit_test(test_a_load),
        cmocka_unit_test(test_peaks),       cmocka_unit_test(test_nothing_succeeded),
        cmocka_unit_test(test_arrivals),    cmocka_unit_test(test_histograms),
        cmocka_unit_test(test_plots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
