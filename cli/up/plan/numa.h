#pragma once
/* The NUMA node of each worker of `cox up`: --numa-bind, --numa-bind-nodes and --numa-bind-cpus as
 * cox-worker's --numa-node and --cpus. A worker's number alone says its place, so that one that is
 * started again is where it was; those that come later take turns. Pure. */
#include "cli/up/plan/options.h"
#include "cli/up/plan/types.h"
#include "common/base/status.h"

struct up_numa {
    const struct up_options *o;
    const struct up_place *place;
    uint32_t n_workers, n_computing; /* the rest are spares, the last ones */
    uint32_t n_in_order;             /* that compute from the start; those behind go by turns */
};

struct up_numa up_numa_of(const struct up_options *o, const struct up_place *place,
                          int64_t n_workers);

bool up_numa_is_wanted(const struct up_options *o);
/* STATUS_INVALID: lists with fewer entries than workers, and what numa_bind_to refuses; without
 * place->numa, as of another machine, only the former. */
MUST_USE enum status up_numa_check(const struct up_numa *u, struct error *err);

/* The flags of worker i; NULL: not given. */
struct up_numa_flags {
    const char *node, *cpus;
    char node_text[12];
};
void up_numa_flags(const struct up_numa *u, uint32_t i, struct up_numa_flags *out);
/* Its kernels' threads, when --threads does not say: the share of those that compute of this
 * machine's cores, or of the CPUs that it is bound to. */
uint32_t up_numa_threads(const struct up_numa *u, uint32_t i);
