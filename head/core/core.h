#pragma once
/* Holds the core of the head: sessions, cluster, requests and scheduling in one object without
 * socket, loop or clock. The caller passes frames and the time, and the core sends frames
 * through head_io. The simulator and the exhaustive exploration (tests/sim, tests/model)
 * therefore run the same code as cox-head.
 *
 *   head_core_on_frame   once for every frame that arrived
 *   head_core_turn       after each batch of frames: places workers, steps replicas, sends tokens
 *   head_core_tick       every HEAD_TICK_MS: heartbeats, losses, deadlines; then head_core_turn
 *
 * One thread runs the core. Frames are borrowed for the call. */
#include "head/core/adapter_orders.h"
#include "head/core/check.h"
#include "head/core/scale.h"
#include "head/core/sleep.h"
#include "head/core/stats.h"
#include "head/state/config.h"

struct head_core;

void head_core_config_init(struct head_core_config *c); /* sets all defaults */
struct head_core *head_core_new(const struct head_core_config *c, const struct head_io *io,
                                uint64_t now_ns);
void head_core_free(struct head_core *h);
/* Handles one frame. `role` and `key` belong to the authenticated sender; without CURVE they are
 * ROLE_NONE and "". */
void head_core_on_frame(struct head_core *h, struct bus_peer from, enum peer_role role,
                        const char *key, struct str frame, uint64_t now_ns);
/* Sets the term of the lease. A head with a lease calls the function before the first frame, and
 * when the term rises. */
void head_core_set_term(struct head_core *h, uint64_t term, uint64_t now_ns);
void head_core_turn(struct head_core *h, uint64_t now_ns);
/* Sets the keys that may connect. Call it again when the set of keys changes: sessions of
 * removed keys then end. The keys are borrowed. Without this call, every peer that can connect
 * is accepted. */
void head_core_authorize(struct head_core *h, const struct authorized *authorized, uint64_t now_ns);
void head_core_tick(struct head_core *h, uint64_t now_ns);
/* Turns draining of the whole cluster on or off. While draining is on, the head refuses new
 * requests and continues resubmitted ones. `by` (here and below) names the caller in the event
 * log. */
void head_core_drain_all(struct head_core *h, bool on, const char *by, uint64_t now_ns);
/* Finds a worker. `name` is 16 hex digits, a node or an ordinal (worker_name.h). */
MUST_USE enum status head_core_find_worker(const struct head_core *h, struct str name,
                                           uint64_t *instance, struct error *err);
/* Drains a worker. Returns STATUS_NOT_FOUND when there is no such worker. */
MUST_USE enum status head_core_drain_worker(struct head_core *h, uint64_t instance, bool on,
                                            const char *by, uint64_t now_ns);
/* Logs an event: the program that starts workers has changed their number. */
void head_core_note_scaled(struct head_core *h, uint32_t was, uint32_t workers, const char *by,
                           uint64_t now_ns);
bool head_core_is_ready(const struct head_core *h); /* a replica serves, or none is needed */

/* Adds `ns` to the silence that every peer may have, because the head itself closed all
 * connections for that time. */
void head_core_forgive(struct head_core *h, uint64_t ns);
/* Sets histograms that the core fills: the time that ranks wait for their next plan, and the
 * tokens of a step. The histograms are borrowed; NULL = not recorded. */
struct metric;
void head_core_set_rank_wait(struct head_core *h, struct metric *histogram);
void head_core_set_step_tokens(struct head_core *h, struct metric *histogram);
/* Sets the histogram of real by predicted times of first tokens; NULL = not recorded. */
void head_core_set_promise_ratio(struct head_core *h, struct metric *histogram);
