#pragma once
/* Computes the digest that every 256th plan contains (msg_plan.digest). Head and rank compute it
 * over the sequences as they are after the plan was applied: without finished slots, with the
 * admitted sequences and the positions of the runs. It is a sum modulo 2^64 of one term per
 * sequence and one per block held. So each side can update the blocks' part with each change of
 * blocks, instead of walking all tables (a replica may hold millions). A plan with a digest is
 * made only when no drafts are in flight, because the head does not know the lengths otherwise.
 *
 *   sequence: length = positions run so far (an admitted one that has not run yet: n_computed);
 *   block: index = its place in the sequence, blocks dropped from the front counted. */
#include <stdint.h>

#define PLAN_DIGEST_EVERY 256u

/* Mixes bits with the finalizer of MurmurHash3 (Appleby, public domain). Terms that are added
 * must differ in all their bits when their inputs differ in one. */
static inline uint64_t plan_digest_mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCDull;
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53ull;
    return x ^ x >> 33;
}

static inline uint64_t plan_digest_sequence(uint32_t slot, uint32_t length)
{
    return plan_digest_mix(((uint64_t)slot << 32 | length) * 0x9E3779B97F4A7C15ull + 1);
}

static inline uint64_t plan_digest_block(uint32_t slot, uint32_t i_group, uint32_t index,
                                         uint32_t id)
{
    uint64_t where = ((uint64_t)slot << 32 | index) * 0xD6E8FEB86659FD93ull;
    uint64_t what = ((uint64_t)i_group << 32 | id) * 0xA0761D6478BD642Full;
    return plan_digest_mix(where ^ (what << 29 | what >> 35));
}

/* Returns the sum in the form for a plan: never 0, because 0 in a plan means "no digest". */
static inline uint64_t plan_digest_end(uint64_t sum)
{
    return sum ? sum : 1;
}
