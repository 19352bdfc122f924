#pragma once
/* Simulates one replica of a cluster: the real request table and scheduler with a simulated
 * rank, a fake clock and a seed. Everything random comes from the seed, also the shape of the
 * world (depth, budgets, pool sizes, KV groups, arrivals, cancels, deadlines, lost ranks,
 * unsolicited answers). A seed therefore repeats a run exactly. Each turn checks scheduler_check
 * (in worlds of hundreds of sequences only every 64th turn, because it visits everything), the
 * rank's own check of every plan, and each token against the null rule. It also checks that the
 * oldest running sequence is never preempted, and that the replica always runs a step when there
 * is work. At the end everything drains: each request ended exactly once and for the right
 * reason, and all blocks are free. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct sim_report {
    uint64_t n_turns, n_steps, n_tokens, n_requests;
    uint64_t n_stopped, n_length, n_cancelled, n_timeouts, n_refused;
    uint64_t n_resubmitted, n_preemptions, n_resets, n_discarded, n_digests, n_lies,
        n_prompt_logprobs;
    uint64_t hit_tokens, query_tokens, n_drafted, n_accepted, n_copied;
    uint64_t n_moved_out, n_moved_in, n_moves_lost;
};

/* Runs a world: requests arrive until n_steps plans have been made. Adds to *report. Returns
 * false when a property failed; err names the property, with seed and turn. */
bool sim_run(uint64_t seed, uint64_t n_steps, struct sim_report *report, struct error *err);
