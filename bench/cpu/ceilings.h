#pragma once
/* The most that a CPU can do, which benches put beside the figures of kernels: pieces of work for
 * the tasks of a pool. */
#include <stddef.h>

#include "kernels/cpu/cpu.h"

/* Fused multiply-adds on registers; nothing for CPU_ISA_SCALAR, which has none. */
void cpu_ceiling_fma(enum cpu_isa isa);
double cpu_ceiling_fma_flop(enum cpu_isa isa); /* of one call; a product and a sum are two */
/* Reads n_bytes, a multiple of 64, once. */
void cpu_ceiling_read(const void *p, size_t n_bytes);
