#pragma once
/* Computes the send times of the requests of a load. The load is an open loop: each request is
 * sent at its time, even when earlier requests have no answer yet. The functions are pure and
 * may run on any thread. */
#include <stdint.h>

#include "common/base/random.h"

enum bench_ramp { BENCH_RAMP_NONE, BENCH_RAMP_LINEAR, BENCH_RAMP_EXPONENTIAL };

struct bench_arrivals {
    double per_s; /* requests per second; INFINITY = all at once */
    /* shape of the gamma distribution of the times between requests: 1 = Poisson, below 1 =
     * burstier, INFINITY = even */
    double burstiness;
    /* enum bench_ramp: how the rate changes from ramp_from to ramp_to over the n requests */
    int ramp;
    double ramp_from, ramp_to;
};

/* Returns a uniform random number in (0, 1). */
double bench_uniform(struct rng *r);
/* Returns a random number from the gamma distribution with shape `shape` and scale 1 (Marsaglia
 * and Tsang 2000). */
double bench_gamma(struct rng *r, double shape);
/* Writes n send times to `out`, ascending, in seconds since the load began. Without a ramp, all
 * times are scaled so that the last request is sent at n / per_s, as vLLM does. */
void bench_arrivals_draw(const struct bench_arrivals *a, struct rng *r, uint32_t n, double *out);
