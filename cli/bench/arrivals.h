#pragma once
/* When the requests of a load are sent, open loop: each at its own time, whatever became of those
 * before. Pure. */
#include <stdint.h>

#include "common/base/random.h"

enum bench_ramp { BENCH_RAMP_NONE, BENCH_RAMP_LINEAR, BENCH_RAMP_EXPONENTIAL };

struct bench_arrivals {
    double per_s;      /* requests per second; INFINITY: all at once */
    double burstiness; /* shape of the gamma distribution of gaps: 1 Poisson, less is burstier,
                        * INFINITY even */
    int ramp;          /* enum bench_ramp: from ramp_from to ramp_to over the n requests */
    double ramp_from, ramp_to;
};

/* Uniform in (0, 1). */
double bench_uniform(struct rng *r);
/* Gamma with this shape and scale 1 (Marsaglia and Tsang 2000). */
double bench_gamma(struct rng *r, double shape);
/* out: [n] seconds from the begin, ascending. As vLLM does, the whole is stretched so that the last
 * one is sent at n / per_s, but for a ramp. */
void bench_arrivals_draw(const struct bench_arrivals *a, struct rng *r, uint32_t n, double *out);
