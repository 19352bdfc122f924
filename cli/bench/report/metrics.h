#pragma once
/* Computes the figures of a load as vLLM's benchmark does: latencies of successful requests,
 * rates over the whole duration, and percentiles with NumPy's linear interpolation. The
 * functions are pure and may run on any thread. */
#include "cli/bench/load.h"

enum bench_metric {
    BENCH_TTFT, /* time to first token */
    /* time per output token: (end - first token) / (tokens - 1), for 2 or more tokens */
    BENCH_TPOT,
    BENCH_ITL,  /* inter-token latency: time between two successive pieces */
    BENCH_E2EL, /* end-to-end latency: time from sending to the end */
    BENCH_METRIC_COUNT
};

enum { BENCH_PERCENTILES_MAX = 16 };

struct bench_series {
    double *values; /* [n] values in milliseconds, ascending */
    size_t n;
};

struct bench_spread {
    /* std: standard deviation of the population; all three are 0 for an empty series */
    double mean, median, std;
};

struct bench_goodput {
    double limit_ms[BENCH_METRIC_COUNT]; /* limit of each metric in ms, for goodput; 0 = no limit */
    bool is_given;
};

struct bench_metrics {
    uint32_t n_completed, n_failed;
    uint64_t n_input_tokens, n_output_tokens;
    double duration_s, requests_per_s, output_per_s, total_per_s;
    /* requests per second within the goodput limits; set only with limits */
    double good_requests_per_s;
    /* largest number of pieces of successful requests within one second */
    double peak_output_per_s;
    uint32_t peak_concurrent; /* largest number of successful requests open at one time */
    struct bench_series series[BENCH_METRIC_COUNT];
};

/* Returns the metric's name in options, such as "ttft". */
const char *bench_metric_key(enum bench_metric m);
/* Returns the metric's short name, such as "TTFT". */
const char *bench_metric_name(enum bench_metric m);
/* Returns the metric's long name, such as "Time to First Token". */
const char *bench_metric_head(enum bench_metric m);

/* Returns the percentile p (0 to 100) of a sorted series; 0 for an empty series. */
double bench_percentile(const struct bench_series *s, double p);
struct bench_spread bench_spread(const struct bench_series *s);
/* Sorts the values, ascending. */
void bench_series_sort(struct bench_series *s);

/* Parses a list such as "25,50,99.9" into out[BENCH_PERCENTILES_MAX]. */
MUST_USE enum status bench_percentiles_parse(const char *text, double *out, size_t *n,
                                             struct error *err);
/* Parses a list such as "ttft,tpot". Sets the bit 1 << metric of *mask for each metric in the
 * list. */
MUST_USE enum status bench_metrics_parse(const char *text, unsigned *mask, struct error *err);
/* Parses one limit such as "ttft:200", in milliseconds, for ttft, tpot or e2el. */
MUST_USE enum status bench_goodput_parse(struct bench_goodput *g, const char *pair,
                                         struct error *err);

void bench_metrics_compute(struct bench_metrics *m, const struct bench_result *results, uint32_t n,
                           double duration_s, const struct bench_goodput *goodput);
void bench_metrics_fini(struct bench_metrics *m);
