#pragma once
/* Describes the plan of `cox up`: its processes, their listeners, and the machine that the
 * processes are planned for. */
#include <sched.h>
#include <stdint.h>

#include "common/host/numa.h"

/* most words of a command line; the head may have 64 adapters and 64 names */
#define UP_ARGV_MAX      352u
#define UP_MAX_NAMES     64u
#define UP_MAX_LORAS     64u
#define UP_LISTENERS_MAX 3u

enum up_role { UP_HEAD, UP_GATEWAY, UP_WORKER, UP_ROLE_COUNT };

/* `up_listener` describes a port that a child will listen on. The port must be free before the
 * start. */
struct up_listener {
    const char *what; /* name of the listener: "gateway-0", "head's admin API" */
    const char *flag; /* option that chooses another port */
    /* address of the listener; NULL = the port is perhaps never used, so it is not checked */
    const char *host;
    uint16_t port; /* port of the listener, never 0 */
};

struct up_child {
    enum up_role role;
    /* number of the child's model in a cluster of several models, counted from 1; 0 = the child
     * belongs to the whole cluster */
    uint32_t model;
    const char *name; /* name of the child: "head", "gateway-0", "worker-1" */
    struct up_listener listeners[UP_LISTENERS_MAX];
    uint32_t n_listeners;
    const char *argv[UP_ARGV_MAX];
    uint32_t n_args;
};

struct up_plan {
    struct up_child *children;
    uint32_t n_children, n_workers;
    const char *model_name; /* model's name in requests */
};

/* `up_place` describes the machine and its folders. bin_dir has cox-head and the other programs.
 * keys_dir has the cluster's keys. own_name is the cluster's unique name when its keys are
 * temporary; NULL = the keys are permanent. n_cores is the number of cores for the workers'
 * kernels. numa and allowed describe this machine and process; numa NULL = unknown.
 * In a cluster of several models, models_file is the file from which the gateways read them, and
 * model and model_tag are the model's number and its part of process names. */
struct up_place {
    const char *bin_dir, *keys_dir, *own_name, *models_file, *model_tag;
    uint32_t n_cores, model;
    const struct numa *numa;
    cpu_set_t allowed;
};
