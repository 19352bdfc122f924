#pragma once
/* The plan of `cox up`: its processes, where each of them will listen, and the machine that they
 * are planned for. */
#include <sched.h>
#include <stdint.h>

#include "common/host/numa.h"

#define UP_ARGV_MAX      352u /* the head may have 64 adapters and 64 names */
#define UP_MAX_NAMES     64u
#define UP_MAX_LORAS     64u
#define UP_LISTENERS_MAX 3u

enum up_role { UP_HEAD, UP_GATEWAY, UP_WORKER, UP_ROLE_COUNT };

/* A port that a child will listen on; it has to be free before the start. */
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

/* The machine and the folders. bin_dir: the folder where cox-head and the others are; keys_dir: of
 * the cluster's keys; own_name: of a cluster with throw-away keys, which no other head can be of;
 * NULL: keys that stay. n_cores: for the workers' kernels. numa, allowed: of this machine and
 * process; NULL: not known.
 */
struct up_place {
    const char *bin_dir, *keys_dir, *own_name;
    uint32_t n_cores;
    const struct numa *numa;
    cpu_set_t allowed;
};
