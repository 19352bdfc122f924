#pragma once
/* Arguments and launch of the kernel in expanded.cu. */
#include "kernels/cuda/attention/launch.cuh"

extern "C" {
#include "kernels/cuda/attention/expansion.h"
}

struct expanded_args {
    /* One KV head for each query head, keys of nope + rope elements, n_splits over all chunks.
     * The fields of the cache are not set. */
    attention_args a;
    const uint16_t *keys;       /* [key][head][nope, value], with key_stride and head_stride */
    const uint16_t *ropes;      /* [key][rope] */
    const uint32_t *first_keys; /* [tile]: index of the key at position key_begin of its sequence */
    uint32_t key_begin, key_end; /* positions that exist; key_begin is a multiple of 32 */
    uint32_t key_stride, head_stride, nope, rope, value;
    uint32_t first_split; /* first split of this launch */
};

uint32_t attention_expanded_blocks(uint32_t shared_bytes);
enum status attention_expanded(const expanded_args &e, uint32_t n_splits, struct gpu_stream *s,
                               struct error *err);
