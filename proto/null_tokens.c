#include "proto/null_tokens.h"

#include <stdbool.h>

/* A vocabulary of at least LARGE_VOCABULARY ids has ordinary text in ids 1000 to 10999. */
enum { LARGE_VOCABULARY = 16384 };

static uint64_t fnv_fold(uint64_t h, uint64_t word, unsigned n_bytes)
{
    for (unsigned i = 0; i < n_bytes; i++)
        h = (h ^ (word >> 8 * i & 0xFF)) * 0x100000001B3ull;
    return h;
}

void null_hash_init(struct null_hash *s, uint64_t seed, uint32_t i_prompt, uint32_t i_choice,
                    float temperature)
{
    /* The comparison makes a NaN count as sampled, because both sides must agree on every bit
     * pattern. */
    bool greedy = temperature <= 0.0f;
    s->h = fnv_fold(0xCBF29CE484222325ull, greedy ? 0 : seed, 8);
    s->h = fnv_fold(s->h, greedy ? 0 : i_prompt, 4);
    s->h = fnv_fold(s->h, greedy ? 0 : i_choice, 4);
}

void null_hash_push(struct null_hash *s, uint32_t id)
{
    s->h = fnv_fold(s->h, id, 4);
}

uint32_t null_hash_token(const struct null_hash *s, uint32_t vocab_size)
{
    uint64_t z = s->h;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    return vocab_size >= LARGE_VOCABULARY ? 1000 + (uint32_t)(z % 10000) : 97 + (uint32_t)(z % 26);
}
