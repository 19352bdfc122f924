#pragma once
/* The adapters that one rank holds, and what they add to the rows that have one
 * (docs/develop/models.md, "LoRA"). Room for max_loras of them at max_rank is taken with the
 * shard, so that loading later cannot run out of memory. Slots belong to the rank's shard; which
 * adapters are held (id, folder) outlives it. Compute thread only. */
#include "proto/adapters.h"
#include "worker/lora/setup.h"

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
