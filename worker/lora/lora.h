#pragma once
/* Keeps the LoRA adapters that one rank holds, and applies them to the rows that use them
 * (docs/develop/models.md, "LoRA"). Memory for max_loras adapters of max_rank is allocated with
 * the shard, so that a later load cannot run out of memory. The contents of the slots belong to
 * the rank's shard. The list of held adapters (id, folder) is kept when the shard changes. All
 * functions run on the compute thread. */
#include "proto/adapters.h"
#include "worker/lora/setup.h"

struct lora_set;
MUST_USE enum status lora_set_new(const struct lora_setup *s, struct lora_set **out,
                                  struct error *err);
void lora_set_free(struct lora_set *l); /* `l` may be NULL */
/* Returns in *out the bytes that adapters take for the shard `p`. STATUS_UNSUPPORTED: the device
 * has no kernel for max_rank. */
MUST_USE enum status lora_set_measure(const struct lora_set *l, const struct program *p,
                                      uint64_t *out, struct error *err);
/* Sets the shard `p`, borrowed until lora_set_drop, allocates the memory and loads the held
 * adapters. An adapter that can no longer be read, or has changed, is dropped and reported by
 * lora_set_next_loss. */
MUST_USE enum status lora_set_take(struct lora_set *l, const struct program *p, struct error *err);
/* Returns each dropped adapter once. Returns false when there are no more. */
bool lora_set_next_loss(struct lora_set *l, uint64_t *id, struct error *why);
void lora_set_drop(struct lora_set *l);

/* Loads this rank's part of the adapter in a folder. After an error nothing has changed. The
 * error's text names file and tensor and is the same on every rank. STATUS_LIMIT: no slot is
 * free, or the adapter's rank is too large. STATUS_EXISTS: the id is loaded. STATUS_DENIED: the
 * folder is not below `root`. *identity is the required identity, if known, and on return the
 * actual one; `identity` may be NULL. */
MUST_USE enum status lora_set_load(struct lora_set *l, uint64_t id, const char *path,
                                   struct adapter_identity *identity, struct error *err);
void lora_set_unload(struct lora_set *l, uint64_t id); /* ignores an unknown id */
/* Returns the number (1 or more) that rows use for the adapter; 0 = not loaded. */
uint32_t lora_set_find(const struct lora_set *l, uint64_t id);
/* Returns the bytes of one adapter. Call it only while there is a shard. */
uint64_t lora_set_slot_bytes(const struct lora_set *l);
