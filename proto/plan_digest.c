#include "proto/plan_digest.h"

/* The finalizer of MurmurHash3 (Appleby, public domain) over two odd multiples: terms that are
 * added must differ in all their bits when their inputs differ in one. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCDull;
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53ull;
    return x ^ x >> 33;
}

uint64_t plan_digest_sequence(uint32_t slot, uint32_t length)
{
    return mix(((uint64_t)slot << 32 | length) * 0x9E3779B97F4A7C15ull + 1);
}

uint64_t plan_digest_block(uint32_t slot, uint32_t i_group, uint32_t index, uint32_t id)
{
    uint64_t where = mix(((uint64_t)slot << 32 | index) * 0xD6E8FEB86659FD93ull + i_group + 2);
    return mix(where ^ (id + 1) * 0xA0761D6478BD642Full);
}

uint64_t plan_digest_end(uint64_t sum)
{
    return sum ? sum : 1;
}
