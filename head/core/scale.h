#pragma once
/* Computes how many workers the cluster needs. It updates state/scale_hint.h once a second, on
 * the loop thread. */
#include "common/base/status.h"
#include "head/cluster/registry.h"
#include "head/state/scale_hint.h"

struct head_core;

/* Returns the number of workers that the cluster needs, and the reason. Both are valid only when
 * `known` is set. */
const struct scale_hint *head_core_scale(const struct head_core *h);
uint32_t head_core_desired_workers(const struct head_core *h);
/* Returns a number that is different when the wanted workers, the replicas, the sleep, or whether
 * requests are open has changed. It is never 0. */
uint64_t head_core_scale_version(const struct head_core *h);
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

/* ---- held sleep (docs/develop/many-models.md, "Sleep levels") ---- */

/* Orders a held sleep: head_core_rest, and then sleep that only head_core_end_rest ends. Requests
 * wait meanwhile, and head_core_desired_workers asks for workers. A held cluster may go to a
 * deeper level while requests wait. Returns the errors of head_core_rest. */
MUST_USE enum status head_core_rest_asleep(struct head_core *h, enum sleep_level level,
                                           uint64_t now_ns, struct error *err);
/* Wakes the cluster, also from a held sleep. Does nothing while it is awake. */
void head_core_end_rest(struct head_core *h, uint64_t now_ns);
/* Returns the number of connected workers that have reached the ordered level; 0 while the cluster
 * is not asleep. */
uint32_t head_core_count_asleep(const struct head_core *h);
