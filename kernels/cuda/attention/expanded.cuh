#pragma once
/* The launch of expanded.cu. */
#include "kernels/cuda/attention/launch.cuh"

extern "C" {
#include "kernels/cuda/attention/expansion.h"
}

struct expanded_args {
    /* A KV head for each query head, rows of nope + rope elements, n_splits in all; of no cache. */
    attention_args a;
    const uint16_t *keys;        /* [key][head][nope, value]: as far apart as these say */
    const uint16_t *ropes;       /* [key][rope] */
    const uint32_t *first_keys;  /* [tile]: where the key at key_begin of its sequence lies */
    uint32_t key_begin, key_end; /* positions that are there; key_begin: a multiple of 32 */
    uint32_t key_stride, head_stride, nope, rope, value;
    uint32_t first_split; /* of the launch's */
};

uint32_t attention_expanded_blocks(uint32_t shared_bytes);
enum status attention_expanded(const expanded_args &e, uint32_t n_splits, struct gpu_stream *s,
                               struct error *err);
