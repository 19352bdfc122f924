#pragma once
/* The loop's inside, for common/net only: libuv's loop and the list of children. Owners of uv
 * handles (bus, http_server) close them before loop_free. Loop thread only. */
#include <uv.h>

#include "common/loop/loop.h"

enum { LOOP_TICK_MS = 250, LOOP_LAG_SLOTS = 4 };

struct loop_hook {
    struct loop_hook *next;
    loop_fn *fn;
    void *ctx;
};

struct loop {
    uv_loop_t uv;
    struct loop_timer *timers;
    struct loop_wakeup *wakeups;
    struct loop_signal *signals;
    struct loop_child *children;
    struct loop_hook *turn_hooks;
    uv_prepare_t turn;
    uv_timer_t tick;
    uint64_t tick_due_ns, lag_ns[LOOP_LAG_SLOTS];
    unsigned i_lag;
    bool watches_children; /* SIGCHLD has its handler */
};

uv_loop_t *loop_uv(struct loop *l);
/* Frees the structs and pipes of children; the processes go on until their parent ends. */
void loop_children_close(struct loop *l);
