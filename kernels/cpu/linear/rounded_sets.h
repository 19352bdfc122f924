#pragma once
/* The sets of kernels behind rounded.h, which has the math: one for each level, and faster ones
 * for CPUs that have extensions. */
#include "kernels/cpu/kernels.h"

/* One set: a level's own, or a faster one that needs an extension. */
struct rounded_kernels {
    const char *name; /* the level and its extension; NULL: no extension */
    bool in_pairs;    /* rows are words of two bfloat16, like weights (pack.h) */
    /* Called by rounded_linear. The weight is bfloat16; t->x holds rows as `round` writes them. */
    void (*linear)(const struct linear_task *t);
    void (*round)(float *to, const float *x, uint32_t k); /* rounds a row of k numbers */
};
/* All sets as do_(set, level), lowest first. */
#ifdef __aarch64__
#define ROUNDED_SETS(do_) do_(scalar, SCALAR) do_(neon, NEON)
#else
#define ROUNDED_SETS(do_)                                                                          \
    do_(scalar, SCALAR) do_(avx2, AVX2) do_(avx512, AVX512) do_(avx512_bf16, AVX512)
/* Returns whether this CPU's vdpbf16ps adds in the documented order. Makers of CPUs may differ,
 * so it is tested at run time. */
bool rounded_avx512_bf16_adds_in_order(void);
#endif
#define ROUNDED_DECLARE(set, level) extern const struct rounded_kernels rounded_kernels_##set;
ROUNDED_SETS(ROUNDED_DECLARE)
#undef ROUNDED_DECLARE
