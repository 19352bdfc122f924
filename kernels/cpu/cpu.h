#pragma once
/* The CPU backend: kernels/ops.h over a pool of threads and one table of kernels per ISA, chosen at
 * run time. Levels: 0 scalar (any CPU; the specification: no fused multiply-add), 1 AVX2 + FMA +
 * F16C or NEON, 2 AVX-512 F/BW/VL/DQ. All but level 0, which rounds each product, give equal bits,
 * of either architecture: the same order of fused operations in 16 lanes. All read one layout of
 * weights, so the level may change between steps. */
#include "kernels/host/threads.h"
#include "kernels/ops.h"

/* The levels of vectors of the architecture that this is compiled for, lowest first: do_(of the
 * enum, of functions, files and --cpu-isa). */
#ifdef __aarch64__
#define CPU_VECTOR_LEVELS(do_) do_(NEON, neon)
#else
#define CPU_VECTOR_LEVELS(do_) do_(AVX2, avx2) do_(AVX512, avx512)
#endif
#define CPU_LEVELS(do_) do_(SCALAR, scalar) CPU_VECTOR_LEVELS(do_)

#define CPU_ISA_ENTRY(upper, lower) CPU_ISA_##upper,
enum cpu_isa {
    CPU_LEVELS(CPU_ISA_ENTRY) CPU_ISA_COUNT,
    CPU_ISA_FUSED = CPU_ISA_SCALAR + 1 /* the first that fuses */
};
#undef CPU_ISA_ENTRY

/* What products take their inputs as: floats, or numbers as narrow as the weights are. Those are,
 * with a matrix of codes (GGUF's Q types, INT4, INT8), codes of eight bits with a scale for each 32
 * (kernels/cpu/dot/dot.h), which are several times as fast and as exact as a format of eight bits
 * is; with one of bfloat16, bfloat16 (kernels/cpu/linear/rounded.h). */
enum cpu_activations { CPU_ACTIVATIONS_F32, CPU_ACTIVATIONS_NARROW };

struct cpu_device_options {
    uint32_t n_threads; /* the caller's own included; 1 .. POOL_MAX_THREADS */
    int32_t isa_level;  /* highest to use; -1: the best that this CPU has */
    bool level_only;    /* no dot products beyond the level (VNNI, BF16, dotprod, i8mm): the same
                         * bits, slower */
    enum cpu_activations activations;
};
/* STATUS_UNSUPPORTED when the CPU lacks isa_level. */
MUST_USE enum status cpu_device_open(const struct cpu_device_options *o, struct device **out,
                                     struct error *err);
/* The best level this CPU and operating system run. */
enum cpu_isa cpu_isa_best(void);
const char *cpu_isa_name(enum cpu_isa isa);
/* A level by its name, of any architecture: cpu_device_open refuses those of another by that name.
 * -1: none. */
int32_t cpu_isa_named(const char *name);
/* pool_spread (kernels/host/threads.h) of the device's threads and the caller. */
void cpu_device_spread(struct device *d, uint32_t i, uint32_t n);
/* Runs fn(ctx, i) for i < n on the device's threads; for loops of the caller's own (sampling). */
void cpu_parallel_for(struct device *d, uint32_t n, void (*fn)(void *ctx, uint32_t i), void *ctx);
