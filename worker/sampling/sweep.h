#pragma once
/* Runs loops of the sampler over a whole vocabulary, sixty-four logits at a time. Most logits
 * are so far below the best that their whole block can be skipped. The compiler vectorises the
 * loops for several register widths on x86-64. All widths give the same bits. Any thread may
 * call these functions. */
#include <stdbool.h>
#include <stdint.h>

enum { SWEEP_BLOCK = 64 };

/* sweep_limit sets the widest registers to use from now on, if the CPU has them (see --cpu-isa).
 * The default is the plain version, which every CPU runs. */
enum sweep_width { SWEEP_PLAIN, SWEEP_AVX2, SWEEP_AVX512 };
void sweep_limit(enum sweep_width most);

/* Returns true when one of n <= SWEEP_BLOCK logits may be at least `limit`, or is NaN. Never
 * returns false when a logit is at least `limit`. */
bool sweep_reaches(const float *logits, uint32_t n, double limit);
/* Replaces distances d >= 0 by exp(-d), to 2 ulp. Results below 1e-306 become about 1e-306. */
void sweep_exps(double d[SWEEP_BLOCK]);
/* Returns the largest of all lanes of Philox4x32-10 over the counters {first + i, c1, c2, c3}, i
 * < SWEEP_BLOCK / 4: the maximum of 64 draws (worker/sampling/draw.h). */
uint32_t sweep_most_bits(const uint32_t key[2], const uint32_t first_counter[4]);
