#include "proto/plan_digest.h"

#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are hashed as they lie in memory");

uint64_t plan_digest_begin(uint32_t n_sequences)
{
    return XXH3_64bits(&n_sequences, sizeof n_sequences);
}

uint64_t plan_digest_sequence(uint64_t h, uint32_t slot, uint32_t length)
{
    uint32_t words[2] = {slot, length};
    return XXH3_64bits_withSeed(words, sizeof words, h);
}

uint64_t plan_digest_table(uint64_t h, uint32_t i_group, uint32_t first, const uint32_t *ids,
                           uint32_t n)
{
    uint32_t words[3] = {i_group, first, n};
    h = XXH3_64bits_withSeed(words, sizeof words, h);
    return n ? XXH3_64bits_withSeed(ids, (size_t)n * sizeof *ids, h) : h;
}

uint64_t plan_digest_end(uint64_t h)
{
    return h ? h : 1;
}
