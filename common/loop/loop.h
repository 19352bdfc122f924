#pragma once
/* Runs one libuv loop per process, on one thread, with the parts that every program needs:
 * signals, timers, calls from other threads. No uv type is in this header. Callbacks run on the
 * loop's thread. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct loop;
struct loop_timer;
struct loop_wakeup;
typedef void loop_fn(void *ctx);
typedef void loop_signal_fn(void *ctx, int signum);

MUST_USE enum status loop_new(struct loop **out, struct error *err);
void loop_free(struct loop *l); /* frees the loop and closes everything that is left open */
void loop_run(struct loop *l);  /* returns after loop_stop */
void loop_stop(struct loop *l); /* call it on the loop's thread only */
/* Returns the monotonic time in ns. Reads the clock at each call. */
uint64_t loop_now_ns(const struct loop *l);
/* Adds a handler for a signal. Several handlers per signal are allowed. They stay until
 * loop_free. */
MUST_USE enum status loop_on_signal(struct loop *l, int signum, loop_signal_fn *fn, void *ctx);

/* Starts a timer. period_ms 0 = once; first_ms 0 = on the next turn. */
struct loop_timer *loop_timer_start(struct loop *l, uint64_t first_ms, uint64_t period_ms,
                                    loop_fn *fn, void *ctx);
void loop_timer_again(struct loop_timer *t, uint64_t first_ms); /* starts the timer again */
void loop_timer_stop(struct loop_timer *t); /* frees the timer, which may be NULL */

/* Creates a wakeup. loop_wake may be called from any thread and from signal handlers. `fn` then
 * runs on the loop, once for one or more calls. */
struct loop_wakeup *loop_wakeup_new(struct loop *l, loop_fn *fn, void *ctx);
void loop_wake(struct loop_wakeup *w);
void loop_wakeup_free(struct loop_wakeup *w);
/* Calls `fn` once in each turn of the loop, before the loop waits for I/O. `fn` may schedule,
 * flush and batch. The hook stays until loop_free. */
void loop_on_turn_end(struct loop *l, loop_fn *fn, void *ctx);
/* Calls `fn` once, in loop_free, while handles can still be closed. The hook is for objects that
 * live as long as the loop. */
void loop_on_free(struct loop *l, loop_fn *fn, void *ctx);
/* Returns the ctx that was given to loop_on_free with this fn, or NULL. */
void *loop_find_on_free(const struct loop *l, loop_fn *fn);
/* Returns the largest delay in ns of the loop's 250 ms tick within the last second. /livez
 * answers 503 above 5 s. */
uint64_t loop_lag_ns(const struct loop *l);
