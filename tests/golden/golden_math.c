#include "tests/golden/golden_math.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

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

void golden_excess_add(struct golden_excess *x, double value, double limit)
{
    const double share = value / limit - 1;
    const bool is_near = share <= GOLDEN_NEAR; /* is_near is false for NaN */
    x->n_near += is_near;
    x->n_far += !is_near;
    golden_widen(&x->worst, share);
}

void golden_excess_text(const struct golden_excess *x, char *out, size_t size)
{
    const uint32_t n = x->n_near + x->n_far;
    char others[64] = "";
    out[0] = '\0';
    if (n + x->n_other == 0)
        return;
    if (x->n_other > 0)
        snprintf(others, sizeof others, "%s%u that no rounding explains", n > 0 ? ", and " : "",
                 x->n_other);
    if (n == 0)
        snprintf(out, size, "%s", others);
    else if (x->n_far > 0)
        snprintf(out, size, "%u beyond their bounds, %u of them FAR beyond, by up to %.0f %%%s", n,
                 x->n_far, 100 * x->worst, others);
    else
        snprintf(out, size,
                 "%u beyond their bounds by at most %.0f %%: within what a tensor core's truncated "
                 "sums explain (%.0f %%), to be judged by hand%s",
                 n, 100 * x->worst, 100 * GOLDEN_NEAR, others);
}
