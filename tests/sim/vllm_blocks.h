#pragma once
/* vLLM's KV cache manager (V1) as its documentation describes it, for one full-attention group:
 * blocks with reference counts, a free list in LRU order, full blocks found again by the hash of
 * all ids up to their end. A block is entered in the cache when it is scheduled. Blocks that are
 * let go stay findable until they are handed out again; of a sequence the last ones go first. */
#include <stdbool.h>
#include <stdint.h>

struct vllm_blocks;
struct vllm_blocks *vllm_blocks_new(uint32_t n_blocks);
void vllm_blocks_free(struct vllm_blocks *b);
uint32_t vllm_blocks_n_free(const struct vllm_blocks *b);
/* The block with this content; UINT32_MAX: none. */
uint32_t vllm_blocks_find(const struct vllm_blocks *b, uint64_t hash);
bool vllm_blocks_is_free(const struct vllm_blocks *b, uint32_t id);
void vllm_blocks_take(struct vllm_blocks *b, uint32_t id); /* one more owner */
uint32_t vllm_blocks_alloc(struct vllm_blocks *b);         /* there is a free one */
void vllm_blocks_enter(struct vllm_blocks *b, uint32_t id, uint64_t hash);
void vllm_blocks_release(struct vllm_blocks *b, const uint32_t *ids, uint32_t n);
