#pragma once
/* Compares rows of logits. */
#include <stddef.h>
#include <stdint.h>

/* Returns sqrt(sum of d^2 / sum of (w - mean of w)^2) over n numbers, with d = got - shift -
 * want. A result that is not finite counts as infinite. */
double golden_share_of_spread(const float *got, double shift, const float *want, uint32_t n);
/* Raises *worst to distance. NaN counts as the largest distance. */
void golden_widen(double *worst, double distance);
double golden_log_sum_exp(const float *logits, uint32_t n);
/* Returns the index of the largest number; the lowest index when several are equal. */
uint32_t golden_argmax(const float *x, uint32_t n);
struct golden_two {
    uint32_t id; /* id of the largest logit */
    double gap;  /* difference between the largest and the second largest logit */
};
struct golden_two golden_two_best(const float *x, uint32_t n);

/* `golden_excess` describes how far failed checks exceed their bounds. A device's bounds were
 * measured on the emulation, whose tensor core adds exactly and rounds once; the tensor core of
 * a GPU truncates (docs/develop/gpu.md, "Numbers"). That may be the only reason when a distance
 * exceeds its bound by at most the fraction GOLDEN_NEAR. Such a check still fails, and the text
 * asks a developer to judge it. */
#define GOLDEN_NEAR 0.15
struct golden_excess {
    /* Numbers of distances beyond their bound: within GOLDEN_NEAR of the bound, and further. */
    uint32_t n_near, n_far;
    uint32_t n_other; /* number of failed checks that do not depend on rounding */
    double worst;     /* largest excess as a fraction of its bound */
};
/* Adds a distance when the value is above the limit or is NaN. NaN counts as far. */
void golden_excess_add(struct golden_excess *x, double value, double limit);
/* Writes one line without a line end, or "" when nothing failed. */
void golden_excess_text(const struct golden_excess *x, char *out, size_t size);
