#pragma once
/* Computes whether a rank fits in a GPU, and how much larger a KV cache would fit. The functions
 * are pure and use only sizes. */
#include "worker/plan/shape.h"

struct fit_ask {
    uint64_t memory_bytes; /* total memory of the GPU */
    double utilization;    /* fraction of the GPU's memory that a worker may use */
    uint64_t batch;        /* concurrent sequences of max_model_len */
    uint32_t max_model_len, most_model_len, block_tokens;
};

struct fit {
    bool fits;
    uint64_t budget_bytes;  /* budget of the worker: utilization * memory_bytes */
    uint64_t kv_bytes;      /* KV cache of the requested batch */
    uint64_t total_bytes;   /* memory of the rank with kv_bytes */
    uint64_t kv_room_bytes; /* part of the budget that remains for the KV cache */
    uint64_t kv_tokens;     /* tokens of sequences of full length that fit into kv_room_bytes */
    uint64_t max_batch;     /* sequences of full length that fit; 0 = none */
    uint32_t max_context;   /* longest context of `batch` sequences; 0 = not one block */
};

void fit_rank(const struct shape_rank *r, const struct fit_ask *ask, struct fit *out);
/* Returns the bytes of a sequence's KV cache in whole blocks. Layers with a window count only
 * the tokens that they hold at once. */
uint64_t fit_sequence_bytes(const struct shape_rank *r, uint32_t n_tokens, uint32_t block_tokens);
/* Returns the bytes of the KV cache of `batch` sequences, at most UINT64_MAX / 2. */
uint64_t fit_batch_bytes(const struct shape_rank *r, uint64_t batch, uint32_t n_tokens,
                         uint32_t block_tokens);
