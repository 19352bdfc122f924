/* Computes the figures of a load with vLLM's formulas, and parses the options that name metrics.
 * `bench_metrics_compute` takes the results of cli/bench/load.h and fills `struct
 * bench_metrics`. plot.c and report.c print that struct.
 * Invariants: latencies come from successful requests only. A series is sorted before a
 * percentile is taken. `struct bench_metrics` owns its series until `bench_metrics_fini`. The
 * functions are pure and may run on any thread. */
#include "cli/bench/report/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/order.h"

static const struct {
    const char *key, *name, *head;
} metrics[BENCH_METRIC_COUNT] = {
    [BENCH_TTFT] = {"ttft", "TTFT", "Time to First Token"},
    [BENCH_TPOT] = {"tpot", "TPOT", "Time per Output Token (excl. 1st token)"},
    [BENCH_ITL] = {"itl", "ITL", "Inter-token Latency"},
    [BENCH_E2EL] = {"e2el", "E2EL", "End-to-end Latency"},
};

const char *bench_metric_key(enum bench_metric m)
{
    return metrics[m].key;
}

const char *bench_metric_name(enum bench_metric m)
{
    return metrics[m].name;
}

const char *bench_metric_head(enum bench_metric m)
{
    return metrics[m].head;
}

/* ---- a series ---- */

void bench_series_sort(struct bench_series *s)
{
    if (s->n > 1)
        qsort(s->values, s->n, sizeof *s->values, order_doubles);
}

double bench_percentile(const struct bench_series *s, double p)
{
    if (s->n == 0)
        return 0;
    double at = (double)(s->n - 1) * p / 100;
    size_t i = (size_t)at;
    if (i + 1 >= s->n)
        return s->values[s->n - 1];
    return s->values[i] + (s->values[i + 1] - s->values[i]) * (at - (double)i);
}

struct bench_spread bench_spread(const struct bench_series *s)
{
    struct bench_spread r = {0};
    double sum = 0, squares = 0;
    if (s->n == 0)
        return r;
    for (size_t i = 0; i < s->n; i++)
        sum += s->values[i];
    r.mean = sum / (double)s->n;
    for (size_t i = 0; i < s->n; i++)
        squares += (s->values[i] - r.mean) * (s->values[i] - r.mean);
    r.std = sqrt(squares / (double)s->n);
    r.median = bench_percentile(s, 50);
    return r;
}

/* ---- options ---- */

static struct str next_item(const char **at)
{
    struct str item = {*at, strcspn(*at, ",")};
    *at += item.len + ((*at)[item.len] == ',');
    while (item.len > 0 && item.ptr[0] == ' ') {
        item.ptr++;
        item.len--;
    }
    return item;
}

enum status bench_percentiles_parse(const char *text, double *out, size_t *n, struct error *err)
{
    *n = 0;
    for (const char *at = text; *at;) {
        struct str item = next_item(&at);
        double p = -1;
        if (*n == BENCH_PERCENTILES_MAX || str_to_f64(item, &p) != STATUS_OK || p < 0 || p > 100)
            return error_set(err, STATUS_INVALID,
                             "--metric-percentiles %s is invalid: give up to %d numbers from 0 to "
                             "100, separated by commas, for example 50,90,99.9",
                             text, BENCH_PERCENTILES_MAX);
        out[(*n)++] = p;
    }
    return STATUS_OK;
}

static int find_metric(struct str key)
{
    for (int m = 0; m < BENCH_METRIC_COUNT; m++)
        if (str_eq_c(key, metrics[m].key))
            return m;
    return -1;
}

enum status bench_metrics_parse(const char *text, unsigned *mask, struct error *err)
{
    *mask = 0;
    for (const char *at = text; *at;) {
        int m = find_metric(next_item(&at));
        if (m < 0)
            return error_set(err, STATUS_INVALID,
                             "--percentile-metrics %s is invalid: give one or more of ttft, tpot, "
                             "itl and e2el, separated by commas",
                             text);
        *mask |= 1u << m;
    }
    return STATUS_OK;
}

enum status bench_goodput_parse(struct bench_goodput *g, const char *pair, struct error *err)
{
    struct str key = {pair, strcspn(pair, ":")};
    int m = find_metric(key);
    double ms = 0;
    if (m < 0 || m == BENCH_ITL || pair[key.len] != ':' ||
        str_to_f64(str_from(pair + key.len + 1), &ms) != STATUS_OK || ms <= 0)
        return error_set(
            err, STATUS_INVALID,
            "--goodput %s is invalid: give ttft:MS, tpot:MS or e2el:MS, with MS in milliseconds",
            pair);
    g->limit_ms[m] = ms;
    g->is_given = true;
    return STATUS_OK;
}

/* ---- a load ---- */

static double ms_of(uint64_t ns)
{
    return (double)ns / 1e6;
}

static double tpot_ms(const struct bench_result *r)
{
    uint64_t all = r->end_ns - r->start_ns;
    return r->n_output_tokens > 1 ? ms_of(all - r->first_ns) / (r->n_output_tokens - 1) : 0;
}

static bool is_good(const struct bench_result *r, const struct bench_goodput *g)
{
    const double has[BENCH_METRIC_COUNT] = {[BENCH_TTFT] = ms_of(r->first_ns),
                                            [BENCH_TPOT] = tpot_ms(r),
                                            [BENCH_E2EL] = ms_of(r->end_ns - r->start_ns)};
    for (int m = 0; m < BENCH_METRIC_COUNT; m++)
        if (g->limit_ms[m] > 0 && has[m] > g->limit_ms[m])
            return false;
    return true;
}

static void add(struct bench_series *s, double ms)
{
    s->values[s->n++] = ms;
}

static void add_result(struct bench_metrics *m, const struct bench_result *r)
{
    m->n_completed++;
    m->n_input_tokens += r->n_prompt_tokens;
    m->n_output_tokens += r->n_output_tokens;
    add(&m->series[BENCH_TTFT], ms_of(r->first_ns));
    add(&m->series[BENCH_E2EL], ms_of(r->end_ns - r->start_ns));
    if (r->n_output_tokens > 1)
        add(&m->series[BENCH_TPOT], tpot_ms(r));
    for (uint32_t k = 0; k < r->n_gaps; k++)
        add(&m->series[BENCH_ITL], ms_of(r->gaps_ns[k]));
}

/* Returns the largest number of successful requests that were open at one time. Two requests do
 * not overlap when one ends at the time at which the other begins. */
static uint32_t peak_open(const struct bench_result *results, uint32_t n, uint32_t n_ok)
{
    uint64_t *starts = mem_array(n_ok, sizeof *starts), *ends = mem_array(n_ok, sizeof *ends);
    uint32_t k = 0, n_ended = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!results[i].ok)
            continue;
        starts[k] = results[i].start_ns;
        ends[k++] = results[i].end_ns;
    }
    qsort(starts, n_ok, sizeof *starts, order_u64);
    qsort(ends, n_ok, sizeof *ends, order_u64);
    for (uint32_t i = 0; i < n_ok; i++) {
        while (n_ended < i && ends[n_ended] <= starts[i])
            n_ended++;
        most = i + 1 - n_ended > most ? i + 1 - n_ended : most;
    }
    mem_free(starts);
    mem_free(ends);
    return most;
}

/* Returns the largest number of pieces of successful requests within one second. The seconds are
 * whole seconds since the first of these requests was sent. */
static uint32_t peak_pieces(const struct bench_result *results, uint32_t n)
{
    uint64_t from = UINT64_MAX, to = 0;
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!results[i].ok)
            continue;
        from = results[i].start_ns < from ? results[i].start_ns : from;
        to = results[i].end_ns > to ? results[i].end_ns : to;
    }
    uint32_t *pieces = mem_array((size_t)((to - from) / NS_PER_S) + 1, sizeof *pieces);
    for (uint32_t i = 0; i < n; i++) {
        const struct bench_result *r = &results[i];
        if (!r->ok)
            continue;
        uint64_t at = r->start_ns - from + r->first_ns;
        pieces[at / NS_PER_S]++;
        for (uint32_t k = 0; k < r->n_gaps; k++)
            pieces[(at += r->gaps_ns[k]) / NS_PER_S]++;
    }
    for (uint64_t s = 0; s <= (to - from) / NS_PER_S; s++)
        most = pieces[s] > most ? pieces[s] : most;
    mem_free(pieces);
    return most;
}

void bench_metrics_compute(struct bench_metrics *m, const struct bench_result *results, uint32_t n,
                           double duration_s, const struct bench_goodput *goodput)
{
    uint32_t n_good = 0;
    size_t n_gaps = 0;
    *m = (struct bench_metrics){.duration_s = duration_s};
    for (uint32_t i = 0; i < n; i++)
        n_gaps += results[i].n_gaps;
    for (int k = 0; k < BENCH_METRIC_COUNT; k++)
        m->series[k].values = mem_array((k == BENCH_ITL ? n_gaps : n) + 1, sizeof(double));
    for (uint32_t i = 0; i < n; i++) {
        if (results[i].ok) {
            add_result(m, &results[i]);
            n_good += is_good(&results[i], goodput);
        }
    }
    m->n_failed = n - m->n_completed;
    for (int k = 0; k < BENCH_METRIC_COUNT; k++)
        bench_series_sort(&m->series[k]);
    if (m->n_completed > 0) {
        m->peak_output_per_s = peak_pieces(results, n);
        m->peak_concurrent = peak_open(results, n, m->n_completed);
    }
    if (duration_s <= 0)
        return;
    m->requests_per_s = m->n_completed / duration_s;
    m->good_requests_per_s = n_good / duration_s;
    m->output_per_s = (double)m->n_output_tokens / duration_s;
    m->total_per_s = (double)(m->n_input_tokens + m->n_output_tokens) / duration_s;
}

void bench_metrics_fini(struct bench_metrics *m)
{
    for (int k = 0; k < BENCH_METRIC_COUNT; k++)
        mem_free(m->series[k].values);
    *m = (struct bench_metrics){0};
}
