#pragma once
/* Describes the memory of a worker's KV cache, and the roles of replicas. It is a part of
 * messages.h. */
#include "proto/spans.h"

enum kv_kind { KV_FULL, KV_WINDOW, KV_LATENT, KV_KIND_COUNT };

/* Describes one KV group: the layers of one kind. block_tokens is a multiple of 16. */
struct kv_group {
    enum kv_kind kind;
    uint32_t window_tokens; /* tokens of the window, for KV_WINDOW */
    uint32_t block_tokens;
    uint64_t bytes_per_block;
    uint32_t n_blocks; /* blocks that this rank can hold */
};

/* Names the part of a request that a replica serves; REPLICA_BOTH is the default. */
enum replica_role { REPLICA_BOTH, REPLICA_PREFILL, REPLICA_DECODE, REPLICA_ROLE_COUNT };

/* Describes a smaller TP that this worker can be a rank of, at the same pp. It has the blocks
 * per KV group that the worker would then hold, and the bytes of one block. */
struct elastic_shape {
    uint32_t tp;
    struct u32_span n_blocks;
    struct u32_span block_bytes; /* bytes of one block; empty = as in kv_groups */
};
