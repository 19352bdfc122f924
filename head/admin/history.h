#pragma once
/* Keeps samples of the last ten minutes, one per second, for the charts of the dashboard.
 * Latencies cover requests that ended within the last ten seconds, at most HISTORY_WINDOW of
 * them, so that the cost of a sample is bounded. The code does no I/O and runs on the loop
 * thread. */
#include <stdint.h>

#define HISTORY_SAMPLES 600u
#define HISTORY_WINDOW  256u

struct head_core;

struct history_sample {
    uint64_t wall_ms;
    uint32_t running, waiting, replicas_ready, workers;
    double prompt_tokens_per_s, generation_tokens_per_s;
    double kv_usage, prefix_hit_rate;     /* shares from 0 to 1, as in /api/status */
    double ttft_s[2], itl_s[2], e2e_s[2]; /* median and 95th percentile; negative = no value */
    uint32_t n_finished, n_failed, n_cancelled, n_preempted; /* change since the previous sample */
};

struct history {
    struct history_sample *ring; /* [HISTORY_SAMPLES]; sample i is at i % HISTORY_SAMPLES */
    uint64_t n; /* number of samples ever taken; also the number of the next sample */
    uint64_t n_finished, n_failed, n_cancelled, n_preempted; /* totals at the last sample */
};
void history_init(struct history *t);
void history_fini(struct history *t);
void history_take(struct history *t, const struct head_core *h);
/* Returns the oldest kept sample with a number of at least *since and sets *since to that
 * number. Returns NULL when there is none. */
const struct history_sample *history_get(const struct history *t, uint64_t *since);
