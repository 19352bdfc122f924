#pragma once
/* The digest that every 256th plan carries (msg_plan.digest): head and rank compute it over the
 * sequences as they stand after the plan has been applied: finished slots gone, admits in, runs
 * counted. It is a sum modulo 2^64 of one term per sequence and one per block held, so either side
 * can keep the blocks' part up to date as blocks come and go instead of walking all tables (a
 * group may hold millions). A plan with a digest is made only when no drafts are in flight: else
 * the head would not know the lengths. Pure.
 *   sequence: length = positions run so far (an admit that has not run yet: n_computed);
 *   block: index = its place in the sequence, blocks dropped from the front counted. */
#include <stdint.h>

#define PLAN_DIGEST_EVERY 256u

uint64_t plan_digest_sequence(uint32_t slot, uint32_t length);
uint64_t plan_digest_block(uint32_t slot, uint32_t i_group, uint32_t index, uint32_t id);
/* The sum as a plan carries it: never 0, because 0 in a plan means "no digest". */
uint64_t plan_digest_end(uint64_t sum);
