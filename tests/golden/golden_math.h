#pragma once
/* Rows of logits, compared. */
#include <stddef.h>
#include <stdint.h>

/* Of n numbers that should be others: sqrt(sum of d^2 / sum of (w - mean of w)^2), where d = got -
 * shift - want. What is not finite is infinitely far. */
double golden_share_of_spread(const float *got, double shift, const float *want, uint32_t n);
/* NaN is further than anything. */
void golden_widen(double *worst, double distance);
double golden_log_sum_exp(const float *logits, uint32_t n);
uint32_t golden_argmax(const float *x, uint32_t n); /* the lowest of equals */
struct golden_two {
    uint32_t id; /* of the largest */
    double gap;  /* to the second */
};
struct golden_two golden_two_best(const float *x, uint32_t n);

/* How far failed checks are beyond their bounds. A device's bounds were measured on the emulation,
 * whose tensor core adds exactly and rounds once; a real one truncates (docs/develop/gpu.md,
 * "Numbers"). A distance that is beyond its bound by no more than GOLDEN_NEAR of it may be just
 * that: it still fails, and the text says that it is one for a person to judge. */
#define GOLDEN_NEAR 0.15
struct golden_excess {
    uint32_t n_near, n_far; /* distances beyond their bound, by that share of it and by more */
    uint32_t n_other;       /* failed checks that rounding has no part in */
    double worst;           /* the largest distance beyond a bound, as a share of the bound */
};
/* value > limit, or it is no number, which is far. */
void golden_excess_add(struct golden_excess *x, double value, double limit);
/* One line without its end; "" when nothing failed. */
void golden_excess_text(const struct golden_excess *x, char *out, size_t size);
