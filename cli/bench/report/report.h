#pragma once
/* The report of a load: vLLM's table, line for line, and the JSON with its keys. */
#include <jansson.h>
#include <stdio.h>

#include "cli/bench/report/metrics.h"

struct bench_report {
    const struct bench_metrics *m;
    unsigned shown; /* bit 1 << metric of each whose latencies are told */
    double percentiles[BENCH_PERCENTILES_MAX];
    size_t n_percentiles;
    double request_per_s;     /* as configured; INFINITY: not told */
    uint32_t max_concurrency; /* 0: not told */
    bool has_goodput;
};

/* As Python prints a float: "3.0", "0.5", "inf". */
const char *bench_float_text(char *out, size_t size, double v);
void bench_report_print(const struct bench_report *r, FILE *to);
/* The figures; with results also what each request had. The caller adds what was configured. */
json_t *bench_report_json(const struct bench_report *r, const struct bench_result *results,
                          uint32_t n);
/* On stderr, as who: how many failed, and of what: each text once, the most frequent first. */
void bench_report_failures(const char *who, const struct bench_result *results, uint32_t n);
/* j into path; append: as a further line. A text that could not be written is an error. */
MUST_USE enum status bench_report_write(const json_t *j, const char *path, bool append,
                                        struct error *err);
