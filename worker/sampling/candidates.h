#pragma once
/* Declares candidates for the next token, and two ways to keep the best of them. The order has
 * no ties: the larger value is first, and the lower id among equal values. Values are finite or
 * -inf. The functions allocate nothing. */
#include <float.h>
#include <math.h>
#include <stdint.h>

struct candidate {
    float value;
    uint32_t id;
};

/* Returns the value of a logit: -inf for NaN, and the largest float for infinity, so that
 * differences of values are numbers. */
static inline float candidate_value(float logit)
{
    return logit <= FLT_MAX ? logit : logit > FLT_MAX ? FLT_MAX : -INFINITY;
}

/* Adds a candidate to a heap of the best `max` candidates, with the worst one at the root, in
 * the caller's array. The cost is O(log max) when the candidate enters, else O(1). max >= 1. */
void candidates_push(struct candidate *heap, uint32_t *n, uint32_t max, struct candidate c);
/* Sorts the candidates, the best first. The cost is O(n log n) for any input order. */
void candidates_sort(struct candidate *c, uint32_t n);
/* Keeps the smallest set of best candidates whose probabilities, softmax(value / temperature)
 * among the n, add up to at least top_p. At least one candidate is kept. Moves the set to the
 * front, in no order, and returns its size. `max` is the largest value; 0 <= top_p < 1. The cost
 * is O(n), apart from nearly equal candidates at the edge. */
uint32_t candidates_top_p(struct candidate *c, uint32_t n, float max, double temperature,
                          double top_p);
/* Like candidates_top_p for all n logits of a vocabulary; writes to out[n]. */
uint32_t candidates_top_p_of(const float *logits, uint32_t n, float max, double temperature,
                             double top_p, struct candidate *out);
