#pragma once
/* Whether a rank fits in a GPU, and how much more would. Sizes alone; pure. */
#include "worker/plan/shape.h"

struct fit_ask {
    uint64_t memory_bytes; /* of the GPU */
    double utilization;    /* the part of it that a worker may have */
    uint64_t batch;        /* sequences of max_model_len at once */
    uint32_t max_model_len, most_model_len, block_tokens;
};

struct fit {
    bool fits;
    uint64_t budget_bytes;  /* utilization of the memory */
    uint64_t kv_bytes;      /* of the batch that is asked for */
    uint64_t total_bytes;   /* with it */
    uint64_t kv_room_bytes; /* what the budget leaves for the KV cache */
    uint64_t kv_tokens;     /* of sequences of full length, in that */
    uint64_t max_batch;     /* of such sequences; 0: not one */
    uint32_t max_context;   /* the longest that `batch` sequences can be; 0: not a block */
};

void fit_rank(const struct shape_rank *r, const struct fit_ask *ask, struct fit *out);
/* KV cache of a sequence, in whole blocks; of layers with a window what they hold at once. */
uint64_t fit_sequence_bytes(const struct shape_rank *r, uint32_t n_tokens, uint32_t block_tokens);
/* Of so many, or half of the largest number there is. */
uint64_t fit_batch_bytes(const struct shape_rank *r, uint64_t batch, uint32_t n_tokens,
                         uint32_t block_tokens);
