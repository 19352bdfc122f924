#pragma once
/* Computes the send times of the requests of a load. The load is open: each request is sent at
 * its own time, whether or not earlier requests have an answer. Pure. */
#include <stdint.h>

#include "common/base/random.h"

enum bench_ramp { BENCH_RAMP_NONE, BENCH_RAMP_LINEAR, BENCH_RAMP_EXPONENTIAL };

struct bench_arrivals {
    double per_s; /* requests per second; INFINITY = all at once */
    /* shape of the gamma distribution of the gaps: 1 = Poisson, below 1 = burstier, INFINITY =
     * even */
    double burstiness;
    int ramp; /* enum bench_ramp: how the rate goes from ramp_from to ramp_to over the n requests */
    double ramp_from, ramp_to;
};

/* Returns a uniform random number in (0, 1). */
double bench_uniform(struct rng *r);
/* Returns a random number of the gamma distribution with this shape and scale 1 (Marsaglia and
 * Tsang 2000). */
double bench_gamma(struct rng *r, double shape);
/* Writes n send times to `out`, ascending, in seconds since the load began. Without a ramp, all
 * times are scaled so that the last request is sent at n / per_s, as vLLM does. */
void bench_arrivals_draw(const struct bench_arrivals *a, struct rng *r, uint32_t n, double *out);
