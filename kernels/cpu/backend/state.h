#pragma once
/* Defines the CPU backend's device, which all files of this folder share. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dot/dot.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/linear/rounded.h"
#include "kernels/host/threads.h"

struct scratch {
    void *block;
    float *floats; /* `block`, aligned to a cache line */
    uint64_t n_floats;
};

/* `row_tile` names successive rows that attention computes together. */
struct row_tile {
    uint32_t begin, n;
};

struct cpu_device {
    struct device base;
    struct pool *pool;
    const struct cpu_kernels *kernels;
    const struct dot_kernels *dots;
    const struct rounded_kernels *rounding;
    enum cpu_isa isa;
    char isa_name[32];
    bool level_only;
    bool is_narrow;          /* whether CPU_ACTIVATIONS_NARROW was chosen */
    struct scratch *scratch; /* `scratch` has the shape [threads] */
    struct scratch parts;    /* scratch for parts, when attention is cut by splits */
    /* `tiles` has the shape [n_tiles]: row tiles of the current attention */
    struct row_tile *tiles;
    uint32_t n_tiles;       /* number of entries allocated for `tiles` */
    struct scratch sorted;  /* scratch for rows of a product, in the matrix's input order */
    struct scratch coded;   /* scratch for rows of a product, as codes */
    struct scratch rounded; /* scratch for rows of a product, as bfloat16 */
    struct scratch tops;    /* scratch for each thread's best outputs in linear_top */
};

static inline struct cpu_device *cpu_of(struct device *d)
{
    return (struct cpu_device *)d;
}

static inline float *row_of(struct view v, uint32_t i)
{
    return (float *)v.data + (size_t)i * v.stride;
}

static inline uint32_t div_up(uint64_t a, uint64_t b)
{
    return (uint32_t)((a + b - 1) / b);
}
