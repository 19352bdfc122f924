#pragma once
/* What a sampler asks of a whole vocabulary, sixty-four logits at a time: most are so far below the
 * best that nothing of them counts, and a block of them is passed over. Loops that the compiler
 * makes vectors of, for registers of several widths on x86-64; the same bits in all. Any thread. */
#include <stdbool.h>
#include <stdint.h>

enum { SWEEP_BLOCK = 64 };

/* The widest registers that are used from now on, where the CPU has them: as --cpu-isa has it. At
 * first none but every CPU's. */
enum sweep_width { SWEEP_PLAIN, SWEEP_AVX2, SWEEP_AVX512 };
void sweep_limit(enum sweep_width most);

/* Whether one of n <= SWEEP_BLOCK logits may be limit or more (a NaN may): never false when one is.
 */
bool sweep_reaches(const float *logits, uint32_t n, double limit);
/* exp(-d) of distances d >= 0, in place, to 2 ulp; what is below 1e-306 is about that. */
void sweep_exps(double d[SWEEP_BLOCK]);
/* The largest first lane .. last lane of Philox4x32-10 over counters {first + i, c1, c2, c3},
 * i < SWEEP_BLOCK / 4: the most that 64 draws have (worker/sampling/draw.h). */
uint32_t sweep_most_bits(const uint32_t key[2], const uint32_t first_counter[4]);
