#pragma once
/* Measures limits of a CPU, which benches print beside the figures of kernels. Each function is
 * the work of one task of a pool. */
#include <stddef.h>

#include "kernels/cpu/cpu.h"

/* Runs fused multiply-adds on registers. Does nothing for CPU_ISA_SCALAR, which has no such
 * instruction. */
void cpu_ceiling_fma(enum cpu_isa isa);
/* Returns the operations of one call of cpu_ceiling_fma. A product and a sum count as two. */
double cpu_ceiling_fma_flop(enum cpu_isa isa);
/* Reads n_bytes once; n_bytes must be a multiple of 64. */
void cpu_ceiling_read(const void *p, size_t n_bytes);
