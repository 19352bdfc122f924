#pragma once
/* One libuv loop per process, one thread on it. Wraps what every program needs: signals, timers,
 * calls from other threads. No uv type is in this header. Callbacks run on the loop's thread. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct loop;
struct loop_timer;
struct loop_wakeup;
typedef void loop_fn(void *ctx);
typedef void loop_signal_fn(void *ctx, int signum);

MUST_USE enum status loop_new(struct loop **out, struct error *err);
void loop_free(struct loop *l);             /* closes what is left open */
void loop_run(struct loop *l);              /* until loop_stop */
void loop_stop(struct loop *l);             /* loop thread only */
uint64_t loop_now_ns(const struct loop *l); /* monotonic, read afresh */
/* Several handlers per signal are allowed; they live until loop_free. */
MUST_USE enum status loop_on_signal(struct loop *l, int signum, loop_signal_fn *fn, void *ctx);

/* period_ms 0: once. first_ms 0: on the next turn. */
struct loop_timer *loop_timer_start(struct loop *l, uint64_t first_ms, uint64_t period_ms,
                                    loop_fn *fn, void *ctx);
void loop_timer_again(struct loop_timer *t, uint64_t first_ms); /* re-arms */
void loop_timer_stop(struct loop_timer *t);                     /* frees; NULL is fine */

/* loop_wake may be called from any thread (and from signal handlers); fn runs on the loop, once for
 * one or more calls. */
struct loop_wakeup *loop_wakeup_new(struct loop *l, loop_fn *fn, void *ctx);
void loop_wake(struct loop_wakeup *w);
void loop_wakeup_free(struct loop_wakeup *w);
/* Once per loop turn, after I/O: the place to schedule, flush, and batch. Until loop_free. */
void loop_on_turn_end(struct loop *l, loop_fn *fn, void *ctx);
/* Once, in loop_free, while handles can still be closed: for what lives as long as the loop. */
void loop_on_free(struct loop *l, loop_fn *fn, void *ctx);
/* The ctx of such a call of this fn; NULL: there was none. */
void *loop_find_on_free(const struct loop *l, loop_fn *fn);
/* How late the loop's 250 ms tick ran at worst in the last second; /livez answers 503 above 5 s. */
uint64_t loop_lag_ns(const struct loop *l);
