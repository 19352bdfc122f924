#pragma once
/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Pure; any
 * thread. */
#include <stdint.h>

/* Salmon et al. 2011, table 2 and section 3.2 (the constants of the published implementation). */
#define PHILOX_M0     0xD2511F53u
#define PHILOX_M1     0xCD9E8D57u
#define PHILOX_W0     0x9E3779B9u
#define PHILOX_W1     0xBB67AE85u
#define PHILOX_ROUNDS 10
/* Ten rounds over the counter, in place. */
void philox4x32_10(uint32_t counter[4], const uint32_t key[2]);
