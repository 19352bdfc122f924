#pragma once
/* The parts of a worker's memory, and their uses: a part of messages.h. */
#include "proto/spans.h"

enum kv_kind { KV_FULL, KV_WINDOW, KV_LATENT, KV_KIND_COUNT };

/* One KV group: the layers of one kind. block_tokens is a multiple of 16. */
struct kv_group {
    enum kv_kind kind;
    uint32_t window_tokens; /* KV_WINDOW */
    uint32_t block_tokens;
    uint64_t bytes_per_block;
    uint32_t n_blocks; /* what this rank can hold */
};

/* The part of a request that a replica is for; both until somebody asks for less. */
enum replica_role { REPLICA_BOTH, REPLICA_PREFILL, REPLICA_DECODE, REPLICA_ROLE_COUNT };

/* A smaller TP that this worker can be a rank of, at the same pp: blocks that it would hold then,
 * per KV group, and the bytes of one. */
struct elastic_shape {
    uint32_t tp;
    struct u32_span n_blocks;
    struct u32_span block_bytes; /* none: what kv_groups says */
};
