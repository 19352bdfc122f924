#pragma once
/* The head's brain: sessions, cluster, requests and scheduling in one object that knows no socket,
 * no loop and no clock. Frames and time go in, frames come out through head_io; so the simulator
 * and the exhaustive exploration (tests/sim, tests/model) drive the very thing that cox-head runs.
 *
 *   head_core_on_frame   once for every frame that arrived
 *   head_core_turn       after each batch of frames: places workers, steps replicas, sends tokens
 *   head_core_tick       every HEAD_TICK_MS: heartbeats, losses, deadlines; then head_core_turn
 *
 * One thread. Frames are borrowed for the call. */
#include "head/core/adapter_orders.h"
#include "head/core/check.h"
#include "head/core/scale.h"
#include "head/core/stats.h"
#include "head/state/config.h"

struct head_core;

void head_core_config_init(struct head_core_config *c); /* the defaults */
struct head_core *head_core_new(const struct head_core_config *c, const struct head_io *io,
                                uint64_t now_ns);
void head_core_free(struct head_core *h);
/* role and key: of the authenticated sender; ROLE_NONE and "" without CURVE. */
void head_core_on_frame(struct head_core *h, struct bus_peer from, enum peer_role role,
                        const char *key, struct str frame, uint64_t now_ns);
/* With a lease: before the first frame, and when the term rises. */
void head_core_set_term(struct head_core *h, uint64_t term, uint64_t now_ns);
void head_core_turn(struct head_core *h, uint64_t now_ns);
/* The keys that may speak, from now on; called again when its content has changed, and sessions of
 * keys that are gone end. Borrowed; never called: whoever is connected. */
void head_core_authorize(struct head_core *h, const struct authorized *authorized, uint64_t now_ns);
void head_core_tick(struct head_core *h, uint64_t now_ns);
/* by, here and below: who asks, for the event; a name that people know.
 * Refuses new requests (resubmissions go on) while on. */
void head_core_drain_all(struct head_core *h, bool on, const char *by, uint64_t now_ns);
/* name: as worker_name.h has it: 16 digits, a node or an ordinal. */
MUST_USE enum status head_core_find_worker(const struct head_core *h, struct str name,
                                           uint64_t *instance, struct error *err);
/* STATUS_NOT_FOUND: no such worker. */
MUST_USE enum status head_core_drain_worker(struct head_core *h, uint64_t instance, bool on,
                                            const char *by, uint64_t now_ns);
/* Adds the event that the number of workers was changed by the one who starts and ends them. */
void head_core_note_scaled(struct head_core *h, uint32_t was, uint32_t workers, const char *by,
                           uint64_t now_ns);
bool head_core_is_ready(const struct head_core *h); /* a replica serves, or none has to */

/* Every connection was ended by us: nobody is blamed for being silent for so long. */
void head_core_forgive(struct head_core *h, uint64_t ns);
/* Histograms that the core fills from now on: how long ranks wait for their next plan, and the
 * tokens of a step. Borrowed; NULL: nobody asks. */
struct metric;
void head_core_set_rank_wait(struct head_core *h, struct metric *histogram);
void head_core_set_step_tokens(struct head_core *h, struct metric *histogram);
