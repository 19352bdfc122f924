#pragma once
/* The adapters that one rank holds, and what they add to the rows that have one (docs/models.md,
 * "LoRA"). Room for max_loras of them at max_rank is taken with the shard, so that loading later
 * cannot run out of memory. Slots belong to the rank's shard; which adapters are held (id, folder)
 * outlives it. Compute thread only. */
#include "kernels/ops.h"
#include "proto/adapters.h"
#include "worker/model/program.h"

#define LORA_MAX_SLOTS 64u /* and ids in a plan */
#define LORA_MAX_RANK  512u

struct lora_setup {
    uint32_t max_loras, max_rank;
    const char *root;   /* adapters lie below it; borrowed; NULL: a path is taken as it is */
    uint32_t pass_rows; /* of the runner */
    struct device *device;
    const struct model_config *config; /* both borrowed */
};

struct lora_set;
MUST_USE enum status lora_set_new(const struct lora_setup *s, struct lora_set **out,
                                  struct error *err);
void lora_set_free(struct lora_set *l); /* NULL is fine */
/* Bytes that the shard's part takes; STATUS_UNSUPPORTED: the device has no kernel for a rank. */
MUST_USE enum status lora_set_measure(const struct lora_set *l, const struct program *p,
                                      uint64_t *out, struct error *err);
/* p is the shard now, borrowed until lora_set_drop: takes the memory and reads what is held. What
 * cannot be read any more, or is another one now, is not held any more: lora_set_next_loss. */
MUST_USE enum status lora_set_take(struct lora_set *l, const struct program *p, struct error *err);
/* Each of these once. False: there are no more. */
bool lora_set_next_loss(struct lora_set *l, uint64_t *id, struct error *why);
void lora_set_drop(struct lora_set *l);

/* Reads this rank's part of the adapter in a folder. What is wrong with it is named with file and
 * tensor, changes nothing, and is the same on every rank. STATUS_LIMIT: no slot is free, or the
 * adapter's rank is too large; STATUS_EXISTS: the id is here; STATUS_DENIED: not below root.
 * identity (NULL: nobody asks): what it has to be, where it is known; then what is here. */
MUST_USE enum status lora_set_load(struct lora_set *l, uint64_t id, const char *path,
                                   struct adapter_identity *identity, struct error *err);
void lora_set_unload(struct lora_set *l, uint64_t id); /* not here: fine */
/* What rows of it carry: 1 and up; 0: it is not here. */
uint32_t lora_set_find(const struct lora_set *l, uint64_t id);
uint64_t lora_set_slot_bytes(const struct lora_set *l); /* of one adapter, once it has a shard */

/* ---- lora_run.c: for the runner ---- */

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
