#pragma once
/* Adapters over the rows of a pass, for the runner. */
#include "worker/lora/setup.h"

struct lora_set;
/* Uploads the rows of a pass: adapters[i] as lora_set_find says, 0: none. */
void lora_set_begin(struct lora_set *l, const uint32_t *adapters, uint32_t n_rows);
/* After weights first .. first + n - 1 of the program's, which have the input x, gave outs: what
 * their adapters add to those rows. n <= LINEAR_MAX_PARTS. */
void lora_set_add(struct lora_set *l, uint32_t first, uint32_t n, struct view x,
                  const struct view *outs);
/* Passes of adapters for which this is the same number enqueue the same: it follows from which
 * matrices they have something for, and is 0 without any. The same on all ranks in turn: from the
 * pass alone, not from what else a rank has loaded. */
uint64_t lora_set_digest(const struct lora_set *l, const uint32_t *adapters, uint32_t n_rows);
