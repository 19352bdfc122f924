#pragma once
/* Describes the sleep of a cluster (docs/develop/head.md, "Sleep"). core/sleep.c changes it. */
#include <stdbool.h>
#include <stdint.h>

#include "head/cluster/registry.h"

/* AWAKE → WAITING → FALLING → ASLEEP → WAKING → AWAKE; an order leads from WAKING to FALLING.
 * WAITING: open requests end, new ones are held. FALLING: replicas dissolve and workers give
 * memory back. */
enum sleep_state {
    SLEEP_AWAKE,
    SLEEP_WAITING,
    SLEEP_FALLING,
    SLEEP_ASLEEP,
    SLEEP_WAKING,
    SLEEP_STATE_COUNT
};

struct head_sleep {
    enum sleep_state state;
    enum sleep_level level; /* ordered level; SLEEP_LEVEL_AWAKE while AWAKE or WAKING */
    uint64_t since_ns;      /* time of the last change of `state` */
    bool wake_ordered;      /* wake as soon as the cluster is asleep */
    bool held;              /* only head_core_end_rest wakes; false while AWAKE or WAKING */
    bool look;              /* a worker may need an order */
    uint64_t n_falls;       /* times that the cluster fell asleep */
    uint64_t n_called_off;  /* orders to sleep that were called off while WAITING */
    uint64_t wake_took_ns;  /* time of the last waking until a replica served; 0 = none yet */
};
