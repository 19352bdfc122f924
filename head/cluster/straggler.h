#pragma once
/* Ranks that make their replica slow: in a replica every step takes as long as its slowest rank,
 * and the others only wait. Heartbeats carry what a rank spent on its steps itself; whose mean over
 * a window is STRAGGLER_FACTOR times its replica's median, three windows in a row, is told by name.
 * It is a report and no verdict: nobody is lost for being slow. Pure. */
#include <stdbool.h>
#include <stdint.h>

#define STRAGGLER_FACTOR 2.0
#define STRAGGLER_OVER   1.5 /* and no longer so below this */

struct own_time {
    uint64_t ns, steps; /* where the window began */
    uint64_t mean_ns;   /* of a step, in the last whole window; 0: there is none */
    bool fresh;         /* that one has not been looked at */
    uint32_t n_slow;    /* windows in a row */
    bool is_straggler;
};

/* Takes the sums of a heartbeat: sums over the process's life; steps 0: the device does not measure
 * it. */
void own_time_take(struct own_time *t, uint64_t ns, uint64_t steps);
/* Against the median of its replica. True when is_straggler has changed. */
bool own_time_judge(struct own_time *t, uint64_t median_ns);
/* Lower of the two in the middle; ns is sorted by this. */
uint64_t own_time_median(uint64_t *ns, uint32_t n);
