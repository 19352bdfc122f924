#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/metrics.h"

static void renders_families_once_with_every_series(void **state)
{
    struct metrics *m = metrics_new();
    struct strbuf out;
    strbuf_init(&out, 0);
    metric_add(metrics_counter(m, "a_total", "k=\"1\"", "counts a"), 2);
    metric_set(metrics_gauge(m, "g", NULL, "a gauge"), -1.5);
    metric_add(metrics_counter(m, "a_total", "k=\"2\"", "counts a"), 1e15);
    metrics_render(m, &out);
    assert_string_equal(out.ptr, "# HELP a_total counts a\n# TYPE a_total counter\n"
                                 "a_total{k=\"1\"} 2\na_total{k=\"2\"} 1e+15\n"
                                 "# HELP g a gauge\n# TYPE g gauge\ng -1.5\n");
    strbuf_fini(&out);
    metrics_free(m);
}

static void the_same_name_and_labels_are_the_same_metric(void **state)
{
    struct metrics *m = metrics_new();
    struct metric *a = metrics_counter(m, "x_total", "l=\"1\"", "x");
    assert_ptr_equal(a, metrics_counter(m, "x_total", "l=\"1\"", "x"));
    assert_ptr_not_equal(a, metrics_counter(m, "x_total", "l=\"2\"", "x"));
    metrics_free(m);
}

static void histogram_buckets_are_cumulative_and_bounds_inclusive(void **state)
{
    static const double bounds[] = {0.1, 1};
    struct metrics *m = metrics_new();
    struct strbuf out;
    strbuf_init(&out, 0);
    struct metric *h = metrics_histogram(m, "h_seconds", "m=\"d\"", "h", bounds, 2);
    const double values[] = {0.05, 0.1, 0.5, 7};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        metric_observe(h, values[i]);
    metrics_render(m, &out);
    assert_non_null(strstr(out.ptr, "h_seconds_bucket{m=\"d\",le=\"0.1\"} 2\n"
                                    "h_seconds_bucket{m=\"d\",le=\"1\"} 3\n"
                                    "h_seconds_bucket{m=\"d\",le=\"+Inf\"} 4\n"
                                    "h_seconds_sum{m=\"d\"} 7.65\nh_seconds_count{m=\"d\"} 4\n"));
    strbuf_fini(&out);
    metrics_free(m);
}

static void labels_are_escaped_and_bounded(void **state)
{
    static char text[METRICS_LABEL_MAX + 2];
    struct strbuf l;
    strbuf_init(&l, 0);
    metrics_label(&l, "a", STR("q\" b\\ n\n t\t \xc3\xa4"));
    metrics_label(&l, "b", STR("cut\xff here"));
    assert_string_equal(l.ptr, "a=\"q\\\" b\\\\ n\\n t\t \xc3\xa4\",b=\"cut\"");
    strbuf_reset(&l);
    /* each character has two bytes, and a plain cut at the limit would fall inside a character */
    for (size_t i = 0; i < sizeof text; i += 2) {
        text[i] = i ? '\xa4' : 'x';
        text[i + 1] = '\xc3';
    }
    metrics_label(&l, "c", (struct str){text, sizeof text});
    assert_int_equal(l.len, METRICS_LABEL_MAX - 1 + strlen("c=\"\""));
    strbuf_fini(&l);
}

static void a_relabelled_series_stays_one(void **state)
{
    struct metrics *m = metrics_new();
    struct strbuf out;
    strbuf_init(&out, 0);
    struct metric *g = metrics_gauge(m, "i_info", "v=\"1\"", "i");
    metric_relabel(g, "v=\"2\"");
    metric_set(g, 1);
    metrics_render(m, &out);
    assert_string_equal(out.ptr, "# HELP i_info i\n# TYPE i_info gauge\ni_info{v=\"2\"} 1\n");
    strbuf_fini(&out);
    metrics_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_families_once_with_every_series),
        cmocka_unit_test(the_same_name_and_labels_are_the_same_metric),
        cmocka_unit_test(histogram_buckets_are_cumulative_and_bounds_inclusive),
        cmocka_unit_test(labels_are_escaped_and_bounded),
        cmocka_unit_test(a_relabelled_series_stays_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
