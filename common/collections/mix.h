#pragma once
/* Returns a number in which every bit depends on all bits of `z`, for hash tables whose keys a
 * peer or client may choose. It is the last step of splitmix64 (Steele, Lea and Flood, "Fast
 * splittable pseudorandom number generators", 2014; these constants are Stafford's variant 13).
 * The function is one-to-one and not a cipher: xor a secret into values that an attacker knows.
 * The function is pure and may run on any thread. */
#include <stdint.h>

static inline uint64_t mix_bits(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}
