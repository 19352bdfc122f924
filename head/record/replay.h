#pragma once
/* Runs a step log again: fresh schedulers are told what those of the head were told, and must make
 * the same plans. Single-threaded, no clock: time is the log's. */
#include <stdio.h>

#include "common/options/replay.h"
#include "head/record/read.h"

struct replay_totals {
    uint64_t n_replicas, n_requests, n_steps, n_idle, n_results;
    uint64_t n_runs, n_tokens;
    bool died_in_step; /* the log ends in a step, which the replay has survived */
};

/* Plans asked for are printed to out. STATUS_OK: all is equal. STATUS_INTERNAL: a plan, an end or
 * an invariant is not: what and where is in err, both plans are on out. Else the log is damaged. */
MUST_USE enum status replay_run(struct step_log_reader *log, const struct replay_options *o,
                                FILE *out, struct replay_totals *totals, struct error *err);
