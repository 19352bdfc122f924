#pragma once
/* Candidates for the next token and the two ways to keep the best of them. An order without ties:
 * the larger value first, the lower id among equals. Nothing here allocates. Values are finite or
 * -inf. */
#include <float.h>
#include <math.h>
#include <stdint.h>

struct candidate {
    float value;
    uint32_t id;
};

/* What a logit counts as: NaN as -inf, infinity as the largest number, so that differences are
 * numbers. */
static inline float candidate_value(float logit)
{
    return logit <= FLT_MAX ? logit : logit > FLT_MAX ? FLT_MAX : -INFINITY;
}

/* Keeps the best max of all that is pushed: a heap with the worst at the root, in the caller's
 * array. O(log max) when one enters, O(1) when not; max >= 1. */
void candidates_push(struct candidate *heap, uint32_t *n, uint32_t max, struct candidate c);
/* Best first, any order before. O(n log n) whatever the order. */
void candidates_sort(struct candidate *c, uint32_t n);
/* Keeps the smallest set of the best whose probabilities, softmax(value / temperature) among the n,
 * add up to top_p or more: at least one. The kept are moved to the front, in no order; returns how
 * many. max is the largest value; 0 <= top_p < 1. O(n) but for about equal ones at the edge. */
uint32_t candidates_top_p(struct candidate *c, uint32_t n, float max, double temperature,
                          double top_p);
/* The same of all n logits of a vocabulary, into out: [n]. */
uint32_t candidates_top_p_of(const float *logits, uint32_t n, float max, double temperature,
                             double top_p, struct candidate *out);
