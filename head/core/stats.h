#pragma once
/* Holds the numbers of the core, for status, metrics and the log. The code runs on the loop
 * thread. */
#include "head/scheduler/scheduler.h"

struct head_core;

struct head_stats {
    uint64_t term, uptime_ns;
    uint32_t n_workers, n_replicas, n_replicas_ready, n_replicas_shrunk, n_gateways, n_stragglers;
    uint32_t running, waiting;
    uint64_t n_finished, n_failed, n_cancelled, n_preemptions, n_steps;
    uint64_t request_bytes; /* bytes of open requests, limited by max_request_bytes */
    uint64_t n_prompt_tokens, n_generated_tokens, prefix_hit_tokens, prefix_query_tokens;
    uint64_t n_blocks, n_blocks_used;
    uint64_t n_formations, n_formation_failures, n_worker_losses, n_worker_departures;
    uint64_t n_adoptions, n_recoveries;
    uint64_t n_evictions, n_copied_blocks, n_draft_steps, n_drafted, n_accepted;
    uint64_t n_transfers, n_transfer_failures, n_transfer_bytes, n_moved, n_recomputed_moves;
    uint64_t n_promises_accepted, n_promises_unknown, n_promises_refused, n_promises_kept,
        n_promises_missed; /* promised first tokens (routing/promises.h) */
    uint32_t n_transfers_under_way;
    double transfer_bytes_per_s;                 /* transfer rate of KV blocks, mean per rank */
    uint32_t n_draft;                            /* most draft tokens per sequence and step */
    uint64_t n_accepted_at[SCHEDULER_MAX_DRAFT]; /* accepted draft tokens by position */
    double prompt_tokens_per_s, generation_tokens_per_s; /* token rates over the last seconds */
    double rank_wait_s; /* time that a rank waits for its next plan, mean over the last seconds */
};
void head_core_get_stats(const struct head_core *h, struct head_stats *out);
/* Takes a sample of the counters, from which the rates are computed. Call it once a second. */
void stats_sample(struct head_core *h);
