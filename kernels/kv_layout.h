#pragma once
/* Computes the places of one layer's keys and values in a block of the KV cache: keys, then
 * values. Each is [kv head][token][head_dim] numbers or codes; codes are followed by [kv
 * head][part][token] scales. */
#include <stddef.h>

#include "kernels/op_params.h"

static inline bool kv_has_scales(enum dtype dtype)
{
    return dtype == DTYPE_F8_E4M3 || dtype == DTYPE_I8;
}

static inline size_t kv_elem_bytes(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F8_E4M3:
    case DTYPE_I8:
        return 1;
    case DTYPE_F16:
    case DTYPE_BF16:
        return 2;
    default:
        return 4;
    }
}

static inline bool kv_is_latent(const struct kv_cache *kv)
{
    return kv->v == kv->k;
}
/* Returns the number of elements that a token's first scale covers. A latent has a second scale
 * for the rest. */
static inline uint32_t kv_part_end(const struct kv_cache *kv)
{
    return kv_is_latent(kv) ? kv->v_dim : kv->head_dim;
}

/* Returns the bytes of one layer's keys in a block. Values need the same number of bytes, except
 * for a latent, which has no values. block_tokens must be a multiple of 4, so that the following
 * data is aligned. */
static inline uint64_t kv_keys_bytes(enum dtype dtype, uint32_t n_kv_heads, uint32_t head_dim,
                                     uint32_t block_tokens, bool latent)
{
    uint64_t tokens = (uint64_t)n_kv_heads * block_tokens;
    uint64_t scales = kv_has_scales(dtype) ? (latent ? 2 : 1) * sizeof(float) : 0;
    return tokens * (head_dim * kv_elem_bytes(dtype) + scales);
}

/* Sets k, v and the scales of a layer whose part of block 0 begins at ptr. The other fields must
 * be set already. */
static inline void kv_layout(struct kv_cache *kv, uint8_t *ptr, bool latent)
{
    uint64_t keys =
        kv_keys_bytes(kv->dtype, kv->n_kv_heads, kv->head_dim, kv->block_tokens, latent);
    uint64_t codes = (uint64_t)kv->n_kv_heads * kv->block_tokens * kv->head_dim;
    kv->k = ptr;
    kv->v = latent ? ptr : ptr + keys;
    kv->k_scales = kv->v_scales = NULL;
    if (!kv_has_scales(kv->dtype))
        return;
    kv->k_scales = (float *)(void *)(ptr + codes);
    kv->v_scales = latent ? kv->k_scales : (float *)(void *)(ptr + keys + codes);
}

/* Returns the address of a KV head's scales in a block. They have the shape [part][token]; only
 * a latent has two parts. */
static inline float *kv_scales(const struct kv_cache *kv, bool values, size_t block,
                               uint32_t i_kv_head)
{
    uint8_t *base = (uint8_t *)(values ? kv->v_scales : kv->k_scales);
    uint32_t n_parts = kv_is_latent(kv) ? 2 : 1;
    return (float *)(void *)(base + block * kv->block_stride) +
           (size_t)i_kv_head * n_parts * kv->block_tokens;
}
