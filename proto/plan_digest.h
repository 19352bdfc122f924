#pragma once
/* The digest that every 256th plan carries (msg_plan.digest): both sides compute it over the active
 * sequences in ascending order of slot, as they stand after the plan has been applied: finished
 * slots gone, admits in, runs counted. Pure; XXH3 chained through its seed. Per sequence:
 *   plan_digest_sequence(h, slot, length): length = start + n_tokens of its last run (an admit that
 *     has not run yet: n_computed);
 *   plan_digest_table(h, i_group, first, ids, n) for each KV group in ascending order, also when
 * the table is empty: first = blocks dropped from the front so far, ids = those held now. The
 * result is never 0, because 0 in a plan means "no digest". */
#include <stdint.h>

#define PLAN_DIGEST_EVERY 256u

uint64_t plan_digest_begin(uint32_t n_sequences);
uint64_t plan_digest_sequence(uint64_t h, uint32_t slot, uint32_t length);
uint64_t plan_digest_table(uint64_t h, uint32_t i_group, uint32_t first, const uint32_t *ids,
                           uint32_t n);
uint64_t plan_digest_end(uint64_t h);
