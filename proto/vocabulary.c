#include "proto/vocabulary.h"

#include <string.h>
#include <xxhash.h>

#define PLACE_BITS 7
_Static_assert(VOCABULARY_PLACES == 1u << PLACE_BITS, "a place is the upper bits of a hash");

/* Two vocabularies of one model may differ in one of TOLERATED places. One form of its files may
 * count added tokens or padding among the ordinary tokens. */
#define TOLERATED 8u

void vocabulary_begin(struct vocabulary_sketcher *k)
{
    memset(k->least, 0xFF, sizeof k->least);
}

void vocabulary_add(struct vocabulary_sketcher *k, uint32_t id, const uint8_t *ptr, size_t len)
{
    uint64_t hash = XXH3_64bits_withSeed(ptr, len, id);
    uint64_t *least = &k->least[hash >> (64 - PLACE_BITS)];
    if (hash < *least)
        *least = hash;
}

void vocabulary_end(const struct vocabulary_sketcher *k, uint32_t n_tokens, struct vocabulary *out)
{
    out->n_tokens = n_tokens;
    for (size_t i = 0; i < VOCABULARY_PLACES; i++) {
        uint16_t kept = (uint16_t)k->least[i];
        if (k->least[i] == UINT64_MAX)
            kept = 0;
        else if (kept == 0)
            kept = 1;
        out->sketch[2 * i] = (uint8_t)kept;
        out->sketch[2 * i + 1] = (uint8_t)(kept >> 8);
    }
}

bool vocabulary_is_same(const struct vocabulary *a, const struct vocabulary *b)
{
    static const uint8_t none[2];
    uint32_t n = 0, n_differ = 0;
    for (uint32_t i = 0; i < VOCABULARY_BYTES; i += 2) {
        const uint8_t *x = &a->sketch[i], *y = &b->sketch[i];
        n += memcmp(x, none, 2) != 0 || memcmp(y, none, 2) != 0;
        n_differ += memcmp(x, y, 2) != 0;
    }
    return n_differ * TOLERATED <= n;
}
