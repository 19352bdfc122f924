#pragma once
/* Two ways through the worlds: every interleaving of a small one (depth first, states seen before
 * are not entered again, the way back is a replay), and long random walks with many faults. Both
 * end with the first violation, whose path is printed as a list of actions. */
#include "tests/model/world.h"

struct explore_result {
    uint64_t n_states, n_actions, n_ends; /* ends: states in which everything is over and well */
    uint64_t n_replays, max_recovery_ns;
    uint32_t depth; /* of the longest path */
    bool complete;  /* every reachable state was seen */
    bool ok;
};

/* max_states 0: no bound. */
struct explore_result explore_all(const struct world_config *c, uint64_t max_states);
struct explore_result explore_random(const struct world_config *c, uint64_t seed, uint32_t n_walks);
