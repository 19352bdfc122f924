#pragma once
/* Declares the arguments and the launch of the kernel in expanded.cu. */
#include "kernels/cuda/attention/launch.cuh"

extern "C" {
#include "kernels/cuda/attention/expansion.h"
}

struct expanded_args {
    /* `a` has one KV head for each query head, keys of nope + rope elements, and n_splits over
     * all chunks. The fields of the cache are not set. */
    attention_args a;
    /* `keys` has the shape [key][head][nope, value], with strides key_stride and head_stride. */
    const uint16_t *keys;
    const uint16_t *ropes; /* `ropes` has the shape [key][rope] */
    /* `first_keys` has, for each tile, the index of the key at position key_begin of the tile's
     * sequence. */
    const uint32_t *first_keys;
    uint32_t key_begin, key_end; /* range of positions that exist; key_begin is a multiple of 32 */
    uint32_t key_stride, head_stride, nope, rope, value;
    uint32_t first_split; /* first split of this launch */
};

uint32_t attention_expanded_blocks(uint32_t shared_bytes);
enum status attention_expanded(const expanded_args &e, uint32_t n_splits, struct gpu_stream *s,
                               struct error *err);
