#pragma once
/* The draft tokens of a step's runs, before they become rows. */
#include "common/options/speculation.h"
#include "worker/sequences/sequences.h"

/* Draft tokens by n-grams where runs may have draft tokens: into the sequences' ids and n_drafted.
 * STATUS_NO_MEMORY only. */
MUST_USE enum status draft_runs(const struct speculation *s, struct sequence_runs runs,
                                struct error *err);
