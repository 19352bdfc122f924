#pragma once
/* Manages the memory of the KV cache: the number of blocks of each KV group, and the addresses
 * of each layer's keys and values. The head decides the content of each block; in this file a
 * block is only a number. */
#include "proto/messages.h"
#include "worker/kv/view.h"
#include "worker/model/program.h"

struct kv_shape {
    enum dtype dtype; /* type of keys and values; see struct kv_cache */
    uint32_t block_tokens, max_model_len;
    uint64_t memory_bytes; /* requested size; 0 = not given */
    bool take_all;         /* without a requested size: take all available memory, not a part */
    uint32_t n_blocks; /* requested number of blocks, which overrides memory_bytes; 0 = not given */
    uint64_t available_bytes; /* bytes free on the device after weights and activations */
    /* `twin_block_bytes` is the size that a draft model needs for each block of the
     * full-attention layers. It is counted as part of the block. */
    uint64_t twin_block_bytes;
};

/* Fills groups[0..p->n_kv_groups). The number of blocks of a group is computed for the stage
 * with most of its layers, so with equal memory all stages get the same number. Returns
 * STATUS_NO_MEMORY, with advice in the text, when one sequence of max_model_len does not fit. */
MUST_USE enum status kv_store_size(const struct program *p, const struct kv_shape *s,
                                   struct kv_group *groups, struct error *err);

/* Returns the tokens of one sequence of length max_model_len that a group with that window (0 =
 * none) must hold at once. */
uint64_t kv_store_sequence_tokens(uint32_t window, uint32_t max_model_len);
/* Returns the bytes of one block of a group: all layers of the group in this stage. */
uint64_t kv_store_block_bytes(const struct program *p, const struct kv_shape *s, uint32_t i_group);

struct kv_store;
/* Allocates the KV cache for sized groups; program and device are borrowed. The environment
 * variable COX_KV_LAYOUT selects the layout. "block" (the default) keeps all layers of a block
 * adjacent. "layer" keeps each layer's blocks together; such blocks cannot move to other
 * replicas. Returns STATUS_INVALID for any other value. */
MUST_USE enum status kv_store_new(const struct program *p, struct device *d, enum dtype dtype,
                                  const struct kv_group *groups, struct kv_store **out,
                                  struct error *err);
void kv_store_free(struct kv_store *s); /* `s` may be NULL */
/* Gives the memory back to the system and keeps its addresses; no block has contents then.
 * Returns false on a device that cannot. */
bool kv_store_discard(struct kv_store *s);
/* Returns the cache of a layer of this stage. */
const struct kv_cache *kv_store_layer(const struct kv_store *s, uint32_t layer);
uint32_t kv_store_block_tokens(const struct kv_store *s, uint32_t i_group);
/* Describes each group as one piece of memory. Returns false when a block has several pieces.
 * The view must not be used then. */
MUST_USE bool kv_store_view(const struct kv_store *s, struct kv_view *out);
/* Copies a block, in every layer of a group. */
void kv_store_copy(struct kv_store *s, const struct plan_copy *c);
