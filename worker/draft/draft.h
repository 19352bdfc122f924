#pragma once
/* Makes draft tokens by n-grams for the runs of a step, before the runs become rows. */
#include "common/options/speculation.h"
#include "worker/sequences/sequences.h"

/* Writes draft tokens after the known ids of each sequence whose run may have draft tokens, and
 * their number to n_drafted. The only error is STATUS_NO_MEMORY. */
MUST_USE enum status draft_runs(const struct speculation *s, struct sequence_runs runs,
                                struct error *err);
