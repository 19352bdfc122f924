#pragma once
/* Load and counters of the cluster, for those who watch it through a gateway: not older than a
 * second or so. Counters begin anew with the head. Part of Cluster (engine.proto). */
#include <stdbool.h>
#include <stdint.h>

struct cluster_load {
    uint64_t n_blocks, n_blocks_used; /* of all ready replicas */
    uint64_t n_preemptions, n_draft_steps, n_drafted, n_accepted;
    uint32_t block_tokens; /* of the first KV group; 0: no group is ready */
    uint32_t max_loras;
    bool prefix_caching;
};
