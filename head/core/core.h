#pragma once
/* The head's brain: sessions, cluster, requests and scheduling in one object that knows no socket,
 * no loop and no clock. Frames and time go in, frames come out through head_io; so the simulator
 * and the exhaustive exploration (tests/sim, tests/model) drive the very thing that cox-head runs.
 *
 *   head_core_on_frame   once for every frame that arrived
 *   head_core_turn       after each batch of frames: places workers, steps groups, sends tokens
 *   head_core_tick       every HEAD_TICK_MS: heartbeats, losses, deadlines; then head_core_turn
 *
 * One thread. Frames are borrowed for the call. */
#include "head/cluster/cluster.h"
#include "head/record/step_log.h"
#include "head/state/scale_hint.h"

#define HEAD_TICK_MS 50u
/* Groups on CPUs have short steps, others what the token budget allows. */
#define STEP_TARGET_BY_DEVICE UINT64_MAX

struct head_core_config {
    struct peers_config peers;
    struct cluster_config cluster;
    uint32_t max_num_batched_tokens, max_num_seqs, max_waiting, long_prefill_token_threshold;
    uint32_t max_partial_prefills;
    uint32_t max_waiting_per_tenant; /* 0: no bound of its own */
    bool priorities;                 /* requests may say how urgent they are */
    uint32_t max_requests;           /* live ones, waiting or not */
    uint64_t max_request_bytes;      /* that they hold before they run, of all */
    uint32_t depth;                  /* steps in flight per group */
    uint64_t step_target_ns;         /* of all groups; 0: off; or STEP_TARGET_BY_DEVICE */
    bool enable_prefix_caching;
    uint32_t max_loras;              /* adapters at once; 0: none */
    const char *model;               /* served name, for humans; borrowed; NULL: the workers' */
    const char *const *served_names; /* all that gateways serve it by; borrowed */
    size_t n_served_names;
    uint64_t gateway_grace_ns, stall_ns;
    uint64_t seed;             /* of session numbers: random in cox-head, fixed in tests */
    uint64_t wall_offset_ns;   /* wall clock minus the clock of now_ns */
    struct scale_config scale; /* world and slots follow from the rest */
    struct step_log *step_log; /* what the schedulers are told and answer; borrowed; NULL: none */
};

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
/* Whose keys may speak, from now on; called again when its content has changed, and sessions of
 * keys that are gone end. Borrowed; never called: whoever is connected. */
void head_core_authorize(struct head_core *h, const struct authorized *authorized, uint64_t now_ns);
void head_core_tick(struct head_core *h, uint64_t now_ns);
/* by, here and below: who asks, for the event; a name that people know.
 * Refuses new requests (resubmissions go on) while on. */
void head_core_drain_all(struct head_core *h, bool on, const char *by, uint64_t now_ns);
/* Of worker_name.h: 16 digits, a node or an ordinal. */
MUST_USE enum status head_core_find_worker(const struct head_core *h, struct str name,
                                           uint64_t *instance, struct error *err);
/* STATUS_NOT_FOUND: no such worker. */
MUST_USE enum status head_core_drain_worker(struct head_core *h, uint64_t instance, bool on,
                                            const char *by, uint64_t now_ns);
/* Adds the event that the number of workers was changed by the one who starts and ends them. */
void head_core_note_scaled(struct head_core *h, uint32_t was, uint32_t workers, const char *by,
                           uint64_t now_ns);
/* Adapters: as adapters.h has them. */
MUST_USE enum status head_core_load_adapter(struct head_core *h, struct str name, struct str path,
                                            bool in_place, const char *by, uint64_t now_ns,
                                            struct error *err);
MUST_USE enum status head_core_unload_adapter(struct head_core *h, struct str name, const char *by,
                                              uint64_t now_ns, struct error *err);
bool head_core_is_ready(const struct head_core *h); /* a group serves, or none has to */
bool head_core_rests(const struct head_core *h);    /* none has to: scale_hint_rests */

struct head_stats {
    uint64_t term, uptime_ns;
    uint32_t n_workers, n_groups, n_groups_ready, n_groups_shrunk, n_gateways, n_stragglers;
    uint32_t running, waiting;
    uint64_t n_finished, n_failed, n_cancelled, n_preemptions, n_steps;
    uint64_t request_bytes; /* of max_request_bytes */
    uint64_t n_prompt_tokens, n_generated_tokens, prefix_hit_tokens, prefix_query_tokens;
    uint64_t n_blocks, n_blocks_used;
    uint64_t n_formations, n_formation_failures, n_worker_losses, n_worker_departures;
    uint64_t n_adoptions, n_recoveries;
    uint64_t n_evictions, n_copied_blocks, n_draft_steps, n_drafted, n_accepted;
    uint64_t n_transfers, n_transfer_failures, n_transfer_bytes, n_moved, n_recomputed_moves;
    uint32_t n_transfers_under_way;
    double transfer_bytes_per_s; /* of a rank, on average */
    uint32_t n_draft;            /* guesses per sequence and step that are granted */
    uint64_t n_accepted_at[SCHEDULER_MAX_DRAFT];         /* by their place among them */
    double prompt_tokens_per_s, generation_tokens_per_s; /* over the last seconds */
    double rank_wait_s;                                  /* mean of the last seconds */
};
/* How many workers are wanted, and why; they mean nothing until it is `known`. */
const struct scale_hint *head_core_scale(const struct head_core *h);
uint32_t head_core_desired_workers(const struct head_core *h);
/* A head that has waited begins to serve: who is here was nobody until now, and is not known yet.
 */
void head_core_forget_scale(struct head_core *h);
/* Every connection was ended by us: nobody is blamed for being silent for so long. */
void head_core_forgive(struct head_core *h, uint64_t ns);
void head_core_get_stats(const struct head_core *h, struct head_stats *out);
/* Histograms that the core fills from now on: how long ranks wait for their next plan, and the
 * tokens of a step. Borrowed; NULL: nobody asks. */
struct metric;
void head_core_set_rank_wait(struct head_core *h, struct metric *histogram);
void head_core_set_step_tokens(struct head_core *h, struct metric *histogram);
/* Every invariant that spans modules: for tests. */
bool head_core_check(const struct head_core *h, struct error *err);
