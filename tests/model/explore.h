#pragma once
/* Explores the worlds in three ways. explore_all visits every interleaving of a small world,
 * depth first, without entering visited states again. It returns to an earlier state by
 * replaying the path to it. explore_bounded visits every deviation from the default path of a
 * larger world. explore_random takes long random walks with many faults. All three end with the
 * first violation and print its path as a list of actions. */
#include "tests/model/world.h"

struct explore_result {
    uint64_t n_states, n_actions, n_ends; /* n_ends: states in which everything has ended well */
    uint64_t n_replays, max_recovery_ns;
    uint32_t depth; /* length of the longest path */
    bool complete;  /* every reachable state was visited */
    bool ok;
};

/* Visits every interleaving. `max_states` limits the states; 0 = no limit. */
struct explore_result explore_all(const struct world_config *c, uint64_t max_states);

/* Holds the bounds of explore_bounded. The default path always takes the first possible action.
 * From each of its states, and from each state found this way, every fault is tried (up to the
 * world's budget). Every other order is tried too, n_delays times on a path. Each deviation is
 * followed on the default path to its end. So from every visited state the cluster recovers
 * without further faults. */
struct explore_bounds {
    uint32_t n_delays;
    uint32_t one_in; /* one in this many deviations is tried, evenly spread; 0 and 1: all */
    uint64_t seed;   /* seed that selects the deviations */
};
struct explore_result explore_bounded(const struct world_config *c, const struct explore_bounds *b);
struct explore_result explore_random(const struct world_config *c, uint64_t seed, uint32_t n_walks);
