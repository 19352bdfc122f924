#pragma once
/* The figures of a load, as vLLM's benchmark computes them: latencies of successful requests,
 * rates over the whole duration, and percentiles with linear interpolation (NumPy's). Pure. */
#include "cli/bench/load.h"

enum bench_metric {
    BENCH_TTFT, /* time to first token */
    BENCH_TPOT, /* (end - first token) / (tokens - 1), for answers of two or more tokens */
    BENCH_ITL,  /* each gap between two pieces */
    BENCH_E2EL, /* time from sending to the end */
    BENCH_METRIC_COUNT
};

enum { BENCH_PERCENTILES_MAX = 16 };

struct bench_series {
    double *values; /* [n] milliseconds, ascending */
    size_t n;
};

struct bench_spread {
    double mean, median, std; /* std is the population's; an empty series has 0 for all */
};

struct bench_goodput {
    double limit_ms[BENCH_METRIC_COUNT]; /* 0 = no limit */
    bool is_given;
};

struct bench_metrics {
    uint32_t n_completed, n_failed;
    uint64_t n_input_tokens, n_output_tokens;
    double duration_s, requests_per_s, output_per_s, total_per_s;
    double good_requests_per_s; /* only with goodput limits */
    double peak_output_per_s;   /* most pieces within one second */
    uint32_t peak_concurrent;   /* most requests open at one time */
    struct bench_series series[BENCH_METRIC_COUNT];
};

const char *bench_metric_key(enum bench_metric m);  /* "ttft" */
const char *bench_metric_name(enum bench_metric m); /* "TTFT" */
const char *bench_metric_head(enum bench_metric m); /* "Time to First Token" */

/* Returns the percentile p (0 to 100) of a sorted series; 0 for an empty one. */
double bench_percentile(const struct bench_series *s, double p);
struct bench_spread bench_spread(const struct bench_series *s);
/* Sorts the values, ascending. */
void bench_series_sort(struct bench_series *s);

/* Parses a list such as "25,50,99.9" into out[BENCH_PERCENTILES_MAX]. */
MUST_USE enum status bench_percentiles_parse(const char *text, double *out, size_t *n,
                                             struct error *err);
/* Parses a list such as "ttft,tpot". Bit 1 << metric of *mask is set for each. */
MUST_USE enum status bench_metrics_parse(const char *text, unsigned *mask, struct error *err);
/* Parses one limit such as "ttft:200", in milliseconds, for ttft, tpot or e2el. */
MUST_USE enum status bench_goodput_parse(struct bench_goodput *g, const char *pair,
                                         struct error *err);

void bench_metrics_compute(struct bench_metrics *m, const struct bench_result *results, uint32_t n,
                           double duration_s, const struct bench_goodput *goodput);
void bench_metrics_fini(struct bench_metrics *m);
