#pragma once
/* Defines the orders to a worker outside of formations and steps, drain and sleep, a part of
 * messages.h. A sleeping worker has given back memory and keeps its process, its links and its
 * threads (docs/develop/protocol.md, "Sleep"). */
#include <stdbool.h>

#include "common/base/status.h"
#include "common/base/str.h"

struct msg_drain {
    bool on;
};
struct msg_drain_wish {
    struct str text;
};

/* The numbers are vLLM's levels, and they travel on the wire. */
enum sleep_level {
    SLEEP_LEVEL_AWAKE,
    SLEEP_LEVEL_KV,      /* the KV cache is dropped; the weights are in host memory */
    SLEEP_LEVEL_WEIGHTS, /* KV cache and weights are dropped */
    SLEEP_LEVEL_COUNT
};

/* Orders a worker in no replica to sleep at a level, or to wake. The worker answers Slept. A Form
 * needs no order before it: the join wakes the worker. */
struct msg_sleep {
    enum sleep_level level;
};
struct msg_slept {
    enum sleep_level level; /* level of the worker after the order */
    enum status status;     /* STATUS_OK, or the reason why `level` is not the ordered one */
    struct str text;
};
