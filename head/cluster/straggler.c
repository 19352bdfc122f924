#include "head/cluster/straggler.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/order.h"

enum { WINDOW_STEPS = 16, WINDOWS = 3 };
/* least time of a rank's own steps in a window, since the time of short steps varies */
#define WINDOW_NS NS_PER_S
/* a mean that exceeds the median by at most this time is never slow */
#define LEAST_GAP_NS NS_PER_MS

void own_time_take(struct own_time *t, uint64_t ns, uint64_t steps)
{
    if (steps < t->steps || ns < t->ns || t->steps == 0) {
        *t = (struct own_time){.ns = ns, .steps = steps, .is_straggler = t->is_straggler};
        return;
    }
    uint64_t d_steps = steps - t->steps, d_ns = ns - t->ns;
    if (d_steps < WINDOW_STEPS || d_ns < WINDOW_NS)
        return;
    t->mean_ns = d_ns / d_steps;
    t->ns = ns;
    t->steps = steps;
    t->fresh = true;
}

bool own_time_judge(struct own_time *t, uint64_t median_ns)
{
    double times = median_ns ? (double)t->mean_ns / (double)median_ns : 1;
    bool was = t->is_straggler, apart = t->mean_ns > median_ns + LEAST_GAP_NS;
    t->fresh = false;
    t->n_slow = times >= STRAGGLER_FACTOR && apart ? t->n_slow + 1 : 0;
    if (t->n_slow >= WINDOWS)
        t->is_straggler = true;
    else if (times < STRAGGLER_OVER || !apart)
        t->is_straggler = false;
    return t->is_straggler != was;
}

uint64_t own_time_median(uint64_t *ns, uint32_t n)
{
    qsort(ns, n, sizeof *ns, order_u64);
    return n ? ns[(n - 1) / 2] : 0;
}
