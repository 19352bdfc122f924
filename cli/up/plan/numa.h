#pragma once
/* Chooses the NUMA node of each worker of `cox up`: --numa-bind, --numa-bind-nodes and
 * --numa-bind-cpus become cox-worker's --numa-node and --cpus. The node depends on the worker's
 * number only, so a restarted worker gets the same node. Workers that are added later are
 * assigned to the nodes in turn. The functions are pure and may run on any thread. */
#include "cli/up/plan/options.h"
#include "cli/up/plan/types.h"
#include "common/base/status.h"

struct up_numa {
    const struct up_options *o;
    const struct up_place *place;
    uint32_t n_workers, n_computing; /* workers from n_computing on are spares */
    /* number of workers that compute from the start; later workers are assigned to the nodes in
     * turn */
    uint32_t n_in_order;
};

struct up_numa up_numa_of(const struct up_options *o, const struct up_place *place,
                          int64_t n_workers);

bool up_numa_is_wanted(const struct up_options *o);
/* Checks the options. STATUS_INVALID: a list has fewer entries than there are workers, or
 * numa_bind_to refuses an entry. Without place->numa (another machine), only the lengths are
 * checked. */
MUST_USE enum status up_numa_check(const struct up_numa *u, struct error *err);

/* `up_numa_flags` holds the NUMA options of one worker; NULL = not given. */
struct up_numa_flags {
    const char *node, *cpus;
    char node_text[12];
};
void up_numa_flags(const struct up_numa *u, uint32_t i, struct up_numa_flags *out);
/* Returns the number of kernel threads for a worker without --threads. It is the worker's share
 * of this machine's cores among the computing workers, or of the CPUs that the worker is bound
 * to. */
uint32_t up_numa_threads(const struct up_numa *u, uint32_t i);
