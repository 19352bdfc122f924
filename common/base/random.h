#pragma once
/* Generates random bits. random_secure is for keys, sessions, ids, and seeds that the client did
 * not set. `struct rng` is a seeded generator (SplitMix64, Steele et al. 2014) for tests and
 * simulators. */
#include <stddef.h>
#include <stdint.h>

void random_secure(void *out, size_t n);
uint64_t random_secure_u64(void);

struct rng {
    uint64_t state;
};
static inline uint64_t rng_next(struct rng *r)
{
    uint64_t z = (r->state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
/* Returns a uniform number in [0, n). n must not be 0. */
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)rng_next(r) * n) >> 64);
}
