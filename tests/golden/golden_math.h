#pragma once
/* Rows of logits, compared. */
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
