/* Prints the report of a load: vLLM's table, JSON with vLLM's keys, and a list of failures.
 * `bench_report_print` and `bench_report_json` print a `struct bench_metrics` (metrics.h).
 * `bench_report_json` can also add the figures of each request. `bench_report_write` writes the
 * JSON to a file.
 * Invariants: names, order and number format are vLLM's, so that scripts that read vLLM's output
 * work here too. Text from a server is cut, and it may be invalid UTF-8. The caller owns the
 * JSON. */
#include "cli/bench/report/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"

enum { WIDTH = 50, FAILURES_TOLD = 5 };

const char *bench_float_text(char *out, size_t size, double v)
{
    if (isinf(v)) {
        snprintf(out, size, "%s", v < 0 ? "-inf" : "inf");
        return out;
    }
    bool is_plain = v == 0 || (fabs(v) >= 1e-4 && fabs(v) < 1e16);
    /* the loop finds the fewest digits that parse as the same number */
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, size, is_plain ? "%.*f" : "%.*g", digits, v);
        if (strtod(out, NULL) == v)
            break;
    }
    return out;
}

/* ---- the table ---- */

/* Centres the text like Python's "{:^50}": with an odd number of fill characters, the right side
 * gets one more. */
static void print_head(FILE *to, const char *text, char fill)
{
    int n = (int)strlen(text), left = n < WIDTH ? (WIDTH - n) / 2 : 0;
    for (int i = 0; i < left; i++)
        fputc(fill, to);
    fputs(text, to);
    for (int i = left + n; i < WIDTH; i++)
        fputc(fill, to);
    fputc('\n', to);
}

static void print_count(FILE *to, const char *name, uint64_t v)
{
    fprintf(to, "%-40s %-10llu\n", name, (unsigned long long)v);
}

static void print_number(FILE *to, const char *name, double v)
{
    fprintf(to, "%-40s %-10.2f\n", name, v);
}

static void print_latency(FILE *to, const char *what, const char *metric, double v)
{
    char name[64];
    snprintf(name, sizeof name, "%s %s (ms):", what, metric);
    print_number(to, name, v);
}

/* Formats a percentile such as "99" or "99.9". */
static const char *percentile_word(char *out, size_t size, double p)
{
    if (p == floor(p))
        snprintf(out, size, "%.0f", p);
    else
        bench_float_text(out, size, p);
    return out;
}

static void print_metric(FILE *to, const struct bench_report *r, enum bench_metric metric)
{
    const struct bench_series *series = &r->m->series[metric];
    const struct bench_spread s = bench_spread(series);
    const char *name = bench_metric_name(metric);
    char word[40], what[48];
    print_head(to, bench_metric_head(metric), '-');
    print_latency(to, "Mean", name, s.mean);
    print_latency(to, "Median", name, s.median);
    for (size_t i = 0; i < r->n_percentiles; i++) {
        snprintf(what, sizeof what, "P%s", percentile_word(word, sizeof word, r->percentiles[i]));
        print_latency(to, what, name, bench_percentile(series, r->percentiles[i]));
    }
}

void bench_report_print(const struct bench_report *r, FILE *to)
{
    const struct bench_metrics *m = r->m;
    print_head(to, " Serving Benchmark Result ", '=');
    print_count(to, "Successful requests:", m->n_completed);
    print_count(to, "Failed requests:", m->n_failed);
    if (r->max_concurrency > 0)
        print_count(to, "Maximum request concurrency:", r->max_concurrency);
    if (isfinite(r->request_per_s))
        print_number(to, "Request rate configured (RPS):", r->request_per_s);
    print_number(to, "Benchmark duration (s):", m->duration_s);
    print_count(to, "Total input tokens:", m->n_input_tokens);
    print_count(to, "Total generated tokens:", m->n_output_tokens);
    print_number(to, "Request throughput (req/s):", m->requests_per_s);
    if (r->has_goodput)
        print_number(to, "Request goodput (req/s):", m->good_requests_per_s);
    print_number(to, "Output token throughput (tok/s):", m->output_per_s);
    print_number(to, "Peak output token throughput (tok/s):", m->peak_output_per_s);
    print_number(to, "Peak concurrent requests:", m->peak_concurrent);
    print_number(to, "Total token throughput (tok/s):", m->total_per_s);
    for (int k = 0; k < BENCH_METRIC_COUNT; k++)
        if (r->shown >> k & 1)
            print_metric(to, r, (enum bench_metric)k);
    print_head(to, "", '=');
}

/* ---- JSON ---- */

static void set_real(json_t *j, const char *key, double v)
{
    json_object_set_new(j, key, json_real(v));
}

static void set_metric(json_t *j, const struct bench_report *r, enum bench_metric metric)
{
    const struct bench_series *series = &r->m->series[metric];
    const struct bench_spread s = bench_spread(series);
    const char *key = bench_metric_key(metric);
    char name[80], word[40];
    snprintf(name, sizeof name, "mean_%s_ms", key);
    set_real(j, name, s.mean);
    snprintf(name, sizeof name, "median_%s_ms", key);
    set_real(j, name, s.median);
    snprintf(name, sizeof name, "std_%s_ms", key);
    set_real(j, name, s.std);
    for (size_t i = 0; i < r->n_percentiles; i++) {
        snprintf(name, sizeof name, "p%s_%s_ms",
                 percentile_word(word, sizeof word, r->percentiles[i]), key);
        set_real(j, name, bench_percentile(series, r->percentiles[i]));
    }
}

static json_t *gaps_of(const struct bench_result *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->n_gaps; i++)
        json_array_append_new(list, json_real((double)r->gaps_ns[i] / 1e9));
    return list;
}

static json_t *text_of(const struct bench_result *r)
{
    struct str text = strbuf_str(&r->text);
    json_t *j = json_stringn(text.ptr, text.len);
    return j ? j : json_string("");
}

/* Returns the error text as a JSON string. The text may be cut within a UTF-8 character, so only
 * its valid part is used. */
static json_t *error_of(const struct bench_result *r)
{
    struct str text = str_from(r->error);
    return json_stringn(text.ptr ? text.ptr : "", str_utf8_valid(text));
}

/* Adds the figures of each request, in the order in which they were sent, in seconds. */
static void set_details(json_t *j, const struct bench_result *results, uint32_t n)
{
    static const char *const keys[] = {"input_lens",  "output_lens",     "ttfts", "itls",
                                       "start_times", "generated_texts", "errors"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        json_object_set_new(j, keys[k], json_array());
    for (uint32_t i = 0; i < n; i++) {
        const struct bench_result *r = &results[i];
        json_t *const values[] = {json_integer(r->n_prompt_tokens),
                                  json_integer(r->ok ? r->n_output_tokens : 0),
                                  json_real(r->ok ? (double)r->first_ns / 1e9 : 0),
                                  gaps_of(r),
                                  json_real((double)r->start_ns / 1e9),
                                  text_of(r),
                                  error_of(r)};
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            json_array_append_new(json_object_get(j, keys[k]), values[k]);
    }
}

json_t *bench_report_json(const struct bench_report *r, const struct bench_result *results,
                          uint32_t n)
{
    const struct bench_metrics *m = r->m;
    json_t *j = json_object();
    set_real(j, "duration", m->duration_s);
    json_object_set_new(j, "completed", json_integer(m->n_completed));
    json_object_set_new(j, "failed", json_integer(m->n_failed));
    json_object_set_new(j, "total_input_tokens", json_integer((json_int_t)m->n_input_tokens));
    json_object_set_new(j, "total_output_tokens", json_integer((json_int_t)m->n_output_tokens));
    set_real(j, "request_throughput", m->requests_per_s);
    json_object_set_new(j, "request_goodput",
                        r->has_goodput ? json_real(m->good_requests_per_s) : json_null());
    set_real(j, "output_throughput", m->output_per_s);
    set_real(j, "total_token_throughput", m->total_per_s);
    set_real(j, "max_output_tokens_per_s", m->peak_output_per_s);
    json_object_set_new(j, "max_concurrent_requests", json_integer(m->peak_concurrent));
    if (results)
        set_details(j, results, n);
    for (int k = 0; k < BENCH_METRIC_COUNT; k++)
        if (r->shown >> k & 1)
            set_metric(j, r, (enum bench_metric)k);
    return j;
}

enum status bench_report_write(const json_t *j, const char *path, bool append, struct error *err)
{
    FILE *f = fopen(path, append ? "ae" : "we");
    if (!f)
        return error_set(err, STATUS_IO, "cannot open the result file %s: %s", path,
                         strerror(errno));
    errno = 0;
    bool ok = !append || ftell(f) <= 0 || fputc('\n', f) != EOF;
    ok = ok && json_dumpf(j, f, JSON_REAL_PRECISION(15)) == 0;
    ok = fclose(f) == 0 && ok;
    return ok ? STATUS_OK
              : error_set(err, STATUS_IO, "the result file %s is incomplete: writing failed (%s)",
                          path, errno ? strerror(errno) : "check the free disk space");
}

/* ---- failures ---- */

struct cause {
    const char *text;
    uint32_t n;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct cause *)a)->text, ((const struct cause *)b)->text);
}

static int by_count(const void *a, const void *b)
{
    uint32_t x = ((const struct cause *)a)->n, y = ((const struct cause *)b)->n;
    return (x < y) - (x > y);
}

void bench_report_failures(const char *who, const struct bench_result *results, uint32_t n)
{
    struct cause *all = mem_array((size_t)n + 1, sizeof *all);
    uint32_t n_failed = 0, n_causes = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!results[i].ok)
            all[n_failed++] =
                (struct cause){results[i].error ? results[i].error : "the request was not sent", 1};
    qsort(all, n_failed, sizeof *all, by_text);
    for (uint32_t i = 0; i < n_failed; i++) {
        if (n_causes > 0 && strcmp(all[n_causes - 1].text, all[i].text) == 0)
            all[n_causes - 1].n++;
        else
            all[n_causes++] = all[i];
    }
    qsort(all, n_causes, sizeof *all, by_count);
    if (n_failed > 0)
        fprintf(stderr, "cox %s: %u of %u requests failed:\n", who, n_failed, n);
    for (uint32_t i = 0; i < n_causes && i < FAILURES_TOLD; i++)
        fprintf(stderr, "  %u: %s\n", all[i].n, all[i].text);
    if (n_causes > FAILURES_TOLD)
        fprintf(
            stderr,
            "  and %u other error texts (save all of them with --save-result --save-detailed)\n",
            n_causes - FAILURES_TOLD);
    mem_free(all);
}
