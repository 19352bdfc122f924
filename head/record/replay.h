#pragma once
/* Replays a step log: new schedulers get the same inputs as those of the head, and must make the
 * same plans. One thread runs the replay, and time comes from the log. */
#include <stdio.h>

#include "common/options/replay.h"
#include "head/record/read.h"

struct replay_totals {
    uint64_t n_replicas, n_requests, n_steps, n_idle, n_results;
    uint64_t n_runs, n_tokens;
    bool died_in_step; /* the log ends in a step, but this scheduler did not die in it */
};

/* Replays the log and prints to `out` the plans that `o` selects. Returns STATUS_OK when
 * everything is equal. Returns STATUS_INTERNAL when a plan, an end or an invariant differs;
 * `err` has the place, and `out` has both plans. Any other error means that the log is damaged. */
MUST_USE enum status replay_run(struct step_log_reader *log, const struct replay_options *o,
                                FILE *out, struct replay_totals *totals, struct error *err);
