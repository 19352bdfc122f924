#pragma once
/* Declares the CPU backend: kernels/ops.h over a pool of threads and one table of kernels for
 * each instruction set, chosen at run time. The levels are 0 scalar (any CPU; the specification,
 * without fused multiply-add), 1 AVX2 + FMA + F16C or NEON, and 2 AVX-512 F/BW/VL/DQ.
 * All levels except 0 give equal bits on both architectures: they execute the same fused
 * operations in the same order in 16 lanes. Level 0 rounds each product. All levels read one
 * layout of weights, so the level may change between steps. */
#include "kernels/host/threads.h"
#include "kernels/ops.h"

/* Lists the vector levels of the target architecture, lowest first, as do_(UPPER, lower). UPPER
 * is the name in the enum; lower is the name in functions, files and --cpu-isa. */
#ifdef __aarch64__
#define CPU_VECTOR_LEVELS(do_) do_(NEON, neon)
#else
#define CPU_VECTOR_LEVELS(do_) do_(AVX2, avx2) do_(AVX512, avx512)
#endif
#define CPU_LEVELS(do_) do_(SCALAR, scalar) CPU_VECTOR_LEVELS(do_)

#define CPU_ISA_ENTRY(upper, lower) CPU_ISA_##upper,
enum cpu_isa {
    CPU_LEVELS(CPU_ISA_ENTRY) CPU_ISA_COUNT,
    CPU_ISA_FUSED = CPU_ISA_SCALAR + 1 /* first level with fused multiply-add */
};
#undef CPU_ISA_ENTRY

/* `cpu_activations` is the form of the inputs of products: floats (F32), or numbers as narrow as
 * the weights (NARROW). With a matrix of codes (GGUF's Q types, INT4, INT8), narrow inputs are
 * 8-bit codes with a scale for each 32 (kernels/cpu/dot/dot.h). These codes are several times as
 * fast as floats, and as exact as an 8-bit format. With a matrix of bfloat16, narrow inputs are
 * bfloat16 (kernels/cpu/linear/rounded.h). */
enum cpu_activations { CPU_ACTIVATIONS_F32, CPU_ACTIVATIONS_NARROW };

struct cpu_device_options {
    uint32_t n_threads; /* 1 .. POOL_MAX_THREADS threads; the calling thread counts too */
    int32_t isa_level;  /* highest level to use; -1 = the best that this CPU has */
    /* true excludes the dot-product instructions beyond the level (VNNI, BF16, dotprod, i8mm);
     * the bits stay the same, but products are slower */
    bool level_only;
    enum cpu_activations activations;
};
/* Opens a device into *out. Returns STATUS_UNSUPPORTED when the CPU lacks isa_level. */
MUST_USE enum status cpu_device_open(const struct cpu_device_options *o, struct device **out,
                                     struct error *err);
/* Returns the best level that this CPU and operating system support. */
enum cpu_isa cpu_isa_best(void);
const char *cpu_isa_name(enum cpu_isa isa);
/* Returns the level with this name, or -1 when there is none. Names of all architectures are
 * accepted, so that cpu_device_open can name a level of another architecture in its error. */
int32_t cpu_isa_named(const char *name);
/* Calls pool_spread (kernels/host/threads.h) for the device's threads and the calling thread. */
void cpu_device_spread(struct device *d, uint32_t i, uint32_t n);
/* Runs fn(ctx, i) for i < n on the device's threads, for loops outside of this backend
 * (sampling). */
void cpu_parallel_for(struct device *d, uint32_t n, void (*fn)(void *ctx, uint32_t i), void *ctx);
