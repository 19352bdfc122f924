#pragma once
/* The memory of the KV cache: how many blocks each KV group gets, and where each layer's keys and
 * values lie. What the blocks mean is the head's business; here they are numbers. */
#include "proto/messages.h"
#include "worker/kv/view.h"
#include "worker/model/program.h"

struct kv_shape {
    enum dtype dtype; /* as kv_cache has it */
    uint32_t block_tokens, max_model_len;
    uint64_t memory_bytes;    /* asked for; 0: not said */
    bool take_all;            /* not said: all that is available, and not a part of it */
    uint32_t n_blocks;        /* asked for; 0: not said. Wins over memory_bytes */
    uint64_t available_bytes; /* of the device, after weights and activations */
    /* Taken elsewhere for each block of the layers that see everything: it counts like theirs. */
    uint64_t twin_block_bytes;
};

/* Fills groups[0..p->n_kv_groups). A group has the blocks that fit where a stage has most of its
 * layers: in the same memory all stages find room for the same number. STATUS_NO_MEMORY when one
 * sequence of max_model_len does not fit in what was asked for or is there; the text says what to
 * do. */
MUST_USE enum status kv_store_size(const struct program *p, const struct kv_shape *s,
                                   struct kv_group *groups, struct error *err);

/* Tokens of one sequence of that length that a group of such a window (0: none) must hold at once.
 */
uint64_t kv_store_sequence_tokens(uint32_t window, uint32_t max_model_len);
/* Of one block of a group: all of its layers that are this stage's. */
uint64_t kv_store_block_bytes(const struct program *p, const struct kv_shape *s, uint32_t i_group);

struct kv_store;
/* groups as sized; program and device are borrowed. COX_KV_LAYOUT in the environment says how a
 * block lies: "block" (as if it were not there), all layers in one piece; "layer", each layer's
 * blocks side by side, which moves no block to other replicas. STATUS_INVALID: something else. */
MUST_USE enum status kv_store_new(const struct program *p, struct device *d, enum dtype dtype,
                                  const struct kv_group *groups, struct kv_store **out,
                                  struct error *err);
void kv_store_free(struct kv_store *s); /* NULL is fine */
/* Of this stage. */
const struct kv_cache *kv_store_layer(const struct kv_store *s, uint32_t layer);
uint32_t kv_store_block_tokens(const struct kv_store *s, uint32_t i_group);
/* Its groups, as one piece each. false: a block is in more than one, and the view is not to be
 * used.
 */
MUST_USE bool kv_store_view(const struct kv_store *s, struct kv_view *out);
/* Copies a block of every layer of a group. */
void kv_store_copy(struct kv_store *s, const struct plan_copy *c);
