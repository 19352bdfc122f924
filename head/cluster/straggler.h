#pragma once
/* Finds ranks that slow down their replica. Every step takes as long as its slowest rank, and
 * the other ranks wait for it. Heartbeats carry the time that a rank itself spent on its steps.
 * A rank is reported when its mean is at least STRAGGLER_FACTOR times the median of its replica
 * in three windows in a row. The mean must also be more than 1 ms longer than the median. The
 * head only reports a slow rank and never drops it. The code does no I/O. */
#include <stdbool.h>
#include <stdint.h>

#define STRAGGLER_FACTOR 2.0
#define STRAGGLER_OVER   1.5 /* factor below which a straggler is no longer a straggler */

struct own_time {
    uint64_t ns, steps; /* sums from the rank's heartbeats at the beginning of the window */
    uint64_t mean_ns;   /* mean time of a step in the last whole window; 0 = none */
    bool fresh;         /* mean_ns has not been judged yet */
    uint32_t n_slow;    /* consecutive slow windows */
    bool is_straggler;
};

/* Stores the sums of a heartbeat, counted since the rank's process started. `steps` is 0 when
 * the device does not measure its steps. */
void own_time_take(struct own_time *t, uint64_t ns, uint64_t steps);
/* Compares the rank's mean with the median of the replica. Returns true when is_straggler has
 * changed. */
bool own_time_judge(struct own_time *t, uint64_t median_ns);
/* Returns the lower median of the `n` times. Sorts `ns`. */
uint64_t own_time_median(uint64_t *ns, uint32_t n);
