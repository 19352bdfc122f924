#pragma once
/* Describes load and counters of the cluster, for users who watch the cluster through a gateway.
 * The figures are at most about a second old. Counters start again at zero with each head. The
 * struct is part of Cluster (engine.proto). */
#include <stdbool.h>
#include <stdint.h>

struct cluster_load {
    uint64_t n_blocks, n_blocks_used; /* sums over all ready replicas */
    uint64_t n_preemptions, n_draft_steps, n_drafted, n_accepted;
    uint32_t block_tokens; /* tokens per block of the first KV group; 0 = no replica is ready */
    uint32_t max_loras;
    bool prefix_caching;
};
