#pragma once
/* A number whose every bit depends on all bits of another, for hash tables of numbers that others
 * choose: the last step of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
 * generators", 2014; these constants are Stafford's variant 13). One to one, and no cipher: xor a
 * secret into what an attacker knows. Pure. */
#include <stdint.h>

static inline uint64_t mix_bits(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}
