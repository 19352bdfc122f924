#pragma once
/* Applies adapters to the rows of a pass, for the runner. */
#include "worker/lora/setup.h"

struct lora_set;
/* Sets the adapters of a pass and copies them to the device: adapters[i] is the number from
 * lora_set_find for row i; 0 = none. */
void lora_set_begin(struct lora_set *l, const uint32_t *adapters, uint32_t n_rows);
/* Adds the adapters' outputs to `outs`, the outputs of weights first .. first + n - 1 of the
 * program for the input x. n <= LINEAR_MAX_PARTS. */
void lora_set_add(struct lora_set *l, uint32_t first, uint32_t n, struct view x,
                  const struct view *outs);
/* Returns a digest of the set of matrices that the pass's adapters change. Two passes with equal
 * digests enqueue the same work for their adapters. 0 = no adapters. The digest depends only on
 * the pass and not on other adapters on this rank, so it is equal on all ranks. */
uint64_t lora_set_digest(const struct lora_set *l, const uint32_t *adapters, uint32_t n_rows);
