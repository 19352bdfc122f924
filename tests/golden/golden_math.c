#include "tests/golden/golden_math.h"

#include <math.h>

double golden_share_of_spread(const float *got, double shift, const float *want, uint32_t n)
{
    double mean = 0, spread = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += (double)want[i] / n;
    for (uint32_t i = 0; i < n; i++) {
        double d = (double)got[i] - shift - (double)want[i], w = (double)want[i] - mean;
        squares += d * d;
        spread += w * w;
    }
    double share = sqrt(squares / spread);
    return isfinite(share) ? share : (double)INFINITY;
}

void golden_widen(double *worst, double distance)
{
    if (!(distance <= *worst))
        *worst = isnan(distance) ? (double)INFINITY : distance;
}

double golden_log_sum_exp(const float *logits, uint32_t n)
{
    float max = logits[0];
    double sum = 0;
    for (uint32_t i = 1; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)expf(logits[i] - max);
    return (double)max + log(sum);
}

uint32_t golden_argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

struct golden_two golden_two_best(const float *x, uint32_t n)
{
    const uint32_t best = golden_argmax(x, n);
    double second = -(double)INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (i != best && (double)x[i] > second)
            second = (double)x[i];
    return (struct golden_two){.id = best, .gap = (double)x[best] - second};
}
