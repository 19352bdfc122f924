#pragma once
/* What `cox up` starts: the command lines of head, gateways and workers from its options. Pure: no
 * process, no file. Strings live on the arena. */
#include "cli/up/plan/options.h"
#include "common/base/arena.h"
#include "common/host/numa.h"

#define UP_ARGV_MAX      352u /* the head may have 64 adapters and 64 names */
#define UP_MAX_NAMES     64u
#define UP_MAX_LORAS     64u
#define UP_LISTENERS_MAX 3u

enum up_role { UP_HEAD, UP_GATEWAY, UP_WORKER, UP_ROLE_COUNT };

/* Where a child will listen; to be free before the start. */
struct up_listener {
    const char *what; /* "gateway-0", "head's admin API" */
    const char *flag; /* what to change when the port is in use */
    const char *host; /* NULL: it may never listen there, and nobody looks */
    uint16_t port;    /* not 0 */
};

struct up_child {
    enum up_role role;
    const char *name; /* "head", "gateway-0", "worker-1" */
    struct up_listener listeners[UP_LISTENERS_MAX];
    uint32_t n_listeners;
    const char *argv[UP_ARGV_MAX];
    uint32_t n_args;
};

struct up_plan {
    struct up_child *children;
    uint32_t n_children, n_workers;
    const char *model_name; /* as requests name it */
};

/* What is here. bin_dir: where cox-head and the others are; keys_dir: of the cluster's keys;
 * own_name: of a cluster with throw-away keys, which no other head can be of; NULL: keys that stay.
 * n_cores: for the workers' kernels. numa, allowed: of this machine and process; NULL: not known.
 */
struct up_place {
    const char *bin_dir, *keys_dir, *own_name;
    uint32_t n_cores;
    const struct numa *numa;
    cpu_set_t allowed;
};

/* STATUS_INVALID for combinations that cannot work. */
MUST_USE enum status up_plan_build(const struct up_options *o, const char *model,
                                   const struct up_place *place, struct arena *arena,
                                   struct up_plan *out, struct error *err);

/* Worker i, more than there were at the start; on the arena. */
MUST_USE enum status up_plan_worker(const struct up_options *o, const char *model,
                                    const struct up_place *place, struct arena *arena, uint32_t i,
                                    const struct up_child **out, struct error *err);

/* HOST:PORT at which this machine reaches a listener of its own: loopback for a wildcard, brackets
 * around an IPv6 address. On the arena. */
const char *up_plan_reachable(struct arena *arena, const char *host, int64_t port);
