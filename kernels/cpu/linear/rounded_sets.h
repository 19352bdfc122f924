#pragma once
/* Declares the sets of kernels behind rounded.h, which has the math: one set for each level, and
 * faster sets for CPUs that have extensions. */
#include "kernels/cpu/kernels.h"

/* `rounded_kernels` is one set: a level's own set, or a faster set that needs an extension. */
struct rounded_kernels {
    const char *name; /* the set's level and extension; NULL when the set needs no extension */
    bool in_pairs;    /* rows are stored as words of two bfloat16, like weights (pack.h) */
    /* `linear` is called by rounded_linear. The weight is bfloat16; t->x holds rows as `round`
     * writes them. */
    void (*linear)(const struct linear_task *t);
    void (*round)(float *to, const float *x, uint32_t k); /* rounds a row of k numbers */
};
/* ROUNDED_SETS lists all sets as do_(set, level), lowest first. */
#ifdef __aarch64__
#define ROUNDED_SETS(do_) do_(scalar, SCALAR) do_(neon, NEON)
#else
#define ROUNDED_SETS(do_)                                                                          \
    do_(scalar, SCALAR) do_(avx2, AVX2) do_(avx512, AVX512) do_(avx512_bf16, AVX512)
/* Returns whether this CPU's vdpbf16ps adds in the documented order. It is tested at run time,
 * because CPUs of different makers may differ. */
bool rounded_avx512_bf16_adds_in_order(void);
#endif
#define ROUNDED_DECLARE(set, level) extern const struct rounded_kernels rounded_kernels_##set;
ROUNDED_SETS(ROUNDED_DECLARE)
#undef ROUNDED_DECLARE
