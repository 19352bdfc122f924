#include "cli/bench/arrivals.h"

#include <math.h>

double bench_uniform(struct rng *r)
{
    /* dividing by 2^53 gives a number in (0, 1) */
    return ((double)(rng_next(r) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(struct rng *r)
{
    double u = bench_uniform(r), v = bench_uniform(r);
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

double bench_gamma(struct rng *r, double shape)
{
    if (shape < 1) { /* the formula is gamma(a) = gamma(a + 1) * U^(1/a) */
        double u = bench_uniform(r);
        return bench_gamma(r, shape + 1) * pow(u, 1 / shape);
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = normal(r), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(bench_uniform(r)) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v;
    }
}

static double rate_at(const struct bench_arrivals *a, uint32_t i, uint32_t n)
{
    double part = n > 1 ? (double)i / (n - 1) : 1;
    switch (a->ramp) {
    case BENCH_RAMP_LINEAR:
        return a->ramp_from + (a->ramp_to - a->ramp_from) * part;
    case BENCH_RAMP_EXPONENTIAL:
        return a->ramp_from * pow(a->ramp_to / a->ramp_from, part);
    default:
        return a->per_s;
    }
}

void bench_arrivals_draw(const struct bench_arrivals *a, struct rng *r, uint32_t n, double *out)
{
    double at = 0;
    for (uint32_t i = 0; i < n; i++) {
        /* an infinite rate gives a mean time of 1 / INFINITY = 0 */
        double mean = 1 / rate_at(a, i, n);
        if (mean > 0)
            at +=
                isinf(a->burstiness) ? mean : bench_gamma(r, a->burstiness) * mean / a->burstiness;
        out[i] = at;
    }
    if (a->ramp != BENCH_RAMP_NONE || n == 0 || out[n - 1] <= 0)
        return;
    double stretch = (double)n / a->per_s / out[n - 1];
    for (uint32_t i = 0; i < n; i++)
        out[i] *= stretch;
}
