#pragma once
/* Writes the report of a load as vLLM's table, with the same lines, and as JSON with vLLM's
 * keys. */
#include <jansson.h>
#include <stdio.h>

#include "cli/bench/report/metrics.h"

struct bench_report {
    const struct bench_metrics *m;
    unsigned shown; /* mask of the metrics whose latencies are shown: 1 << metric */
    double percentiles[BENCH_PERCENTILES_MAX];
    size_t n_percentiles;
    double request_per_s;     /* configured rate in requests per second; INFINITY = not shown */
    uint32_t max_concurrency; /* configured limit of open requests; 0 = not shown */
    bool has_goodput;
};

/* Formats a number as Python prints a float: "3.0", "0.5", "inf". */
const char *bench_float_text(char *out, size_t size, double v);
void bench_report_print(const struct bench_report *r, FILE *to);
/* Returns the figures as JSON. With `results`, the JSON also has the figures of each request.
 * The caller adds the configuration. */
json_t *bench_report_json(const struct bench_report *r, const struct bench_result *results,
                          uint32_t n);
/* Writes to stderr, with the name `who` in front, how many requests failed and why. Each error
 * text is written once, the most frequent text first. */
void bench_report_failures(const char *who, const struct bench_result *results, uint32_t n);
/* Writes the JSON `j` to the file. With `append`, it adds `j` as one more line. A failed write
 * is an error. */
MUST_USE enum status bench_report_write(const json_t *j, const char *path, bool append,
                                        struct error *err);
