#pragma once
/* Three ways through the worlds: every interleaving of a small one (depth first, states seen before
 * are not entered again, the way back is a replay); every deviation from one straight way of a
 * larger one; and long random walks with many faults. All
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

/* The straight way takes the first of what can happen. From each of its states, and from each state
 * that is found so, every fault (as many as the world's budget has) and, n_delays times on a path,
 * every other order is tried, and followed straight on to its end: so from every state that is seen
 * the cluster gets well without further faults. */
struct explore_bounds {
    uint32_t n_delays;
    uint32_t one_in; /* so many deviations, spread evenly, one is tried; 0 and 1: all */
    uint64_t seed;   /* which one */
};
struct explore_result explore_bounded(const struct world_config *c, const struct explore_bounds *b);
struct explore_result explore_random(const struct world_config *c, uint64_t seed, uint32_t n_walks);
