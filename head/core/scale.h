#pragma once
/* Computes how many workers the cluster needs. It updates state/scale_hint.h once a second, on
 * the loop thread. */
#include "common/base/status.h"
#include "head/state/scale_hint.h"

struct head_core;

/* Returns the number of workers that the cluster needs, and the reason. Both are valid only when
 * `known` is set. */
const struct scale_hint *head_core_scale(const struct head_core *h);
uint32_t head_core_desired_workers(const struct head_core *h);
/* Resets the number of workers to unknown. A standby calls the function when it begins to serve,
 * because it has not seen the workers yet. */
void head_core_forget_scale(struct head_core *h);
/* Ends the need of workers before the idle time has passed. The program that starts the workers
 * may then end them, to use their memory for another model. STATUS_EXISTS: requests are open.
 * STATUS_INVALID: --scale-min asks for workers all the time. */
MUST_USE enum status head_core_rest(struct head_core *h, struct error *err);
/* Returns true when no replica serves and none has to serve now (scale_hint_rests). */
bool head_core_rests(const struct head_core *h);
void scale_tick(struct head_core *h);
/* Returns the seconds until a replica will serve, at most 60. Returns 0 when a replica serves
 * already, or when none serves for another reason than the start. */
uint32_t scale_seconds_to_start(const struct head_core *h);
