#pragma once
/* Models vLLM's KV cache manager (V1) as its documentation describes it, for one full-attention
 * group: blocks with reference counts, a free list in LRU order, and full blocks found by the
 * hash of all ids up to their end. A block enters the prefix cache when it is scheduled. Freed
 * blocks can be found until they are allocated again. The last blocks of a sequence are reused
 * first. */
#include <stdbool.h>
#include <stdint.h>

struct vllm_blocks;
struct vllm_blocks *vllm_blocks_new(uint32_t n_blocks);
void vllm_blocks_free(struct vllm_blocks *b);
uint32_t vllm_blocks_n_free(const struct vllm_blocks *b);
/* Returns the block with this content, or UINT32_MAX. */
uint32_t vllm_blocks_find(const struct vllm_blocks *b, uint64_t hash);
bool vllm_blocks_is_free(const struct vllm_blocks *b, uint32_t id);
void vllm_blocks_take(struct vllm_blocks *b, uint32_t id); /* adds an owner to the block */
uint32_t vllm_blocks_alloc(struct vllm_blocks *b);         /* a free block must exist */
void vllm_blocks_enter(struct vllm_blocks *b, uint32_t id, uint64_t hash);
void vllm_blocks_release(struct vllm_blocks *b, const uint32_t *ids, uint32_t n);
