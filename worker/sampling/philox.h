#pragma once
/* Implements Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011). The function is pure, and any thread may call it. */
#include <stdint.h>

/* PHILOX_M0 and the next constants are from Salmon et al. 2011, table 2 and section 3.2 (those
 * of the published implementation). */
#define PHILOX_M0     0xD2511F53u
#define PHILOX_M1     0xCD9E8D57u
#define PHILOX_W0     0x9E3779B9u
#define PHILOX_W1     0xBB67AE85u
#define PHILOX_ROUNDS 10
/* Runs ten rounds over the counter, in place. The function is inline, because a draw is little
 * more than these rounds. */
static inline void philox4x32_10(uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int i = 0; i < PHILOX_ROUNDS; i++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0, p1 = (uint64_t)PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    counter[0] = c0;
    counter[1] = c1;
    counter[2] = c2;
    counter[3] = c3;
}
