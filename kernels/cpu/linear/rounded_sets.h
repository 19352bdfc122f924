#pragma once
/* The sets of kernels behind rounded.h, which says what they add: one for each level, and what is
 * faster beside it. */
#include "kernels/cpu/kernels.h"

/* One set for each level, and what is faster beside it. */
struct rounded_kernels {
    const char *name; /* of the level and what it needs beside it; NULL: nothing */
    bool in_pairs;    /* rows are words of two bfloat16, as weights are (pack.h) */
    /* The weight is bfloat16; x: rows as round leaves them. Called by rounded_linear. */
    void (*linear)(const struct linear_task *t);
    void (*round)(float *to, const float *x, uint32_t k); /* k numbers: a row */
};
/* do_(set, level), lowest first. */
#ifdef __aarch64__
#define ROUNDED_SETS(do_) do_(scalar, SCALAR) do_(neon, NEON)
#else
#define ROUNDED_SETS(do_)                                                                          \
    do_(scalar, SCALAR) do_(avx2, AVX2) do_(avx512, AVX512) do_(avx512_bf16, AVX512)
/* Whether vdpbf16ps adds as is written above: who made the CPU has the last word. */
bool rounded_avx512_bf16_adds_in_order(void);
#endif
#define ROUNDED_DECLARE(set, level) extern const struct rounded_kernels rounded_kernels_##set;
ROUNDED_SETS(ROUNDED_DECLARE)
#undef ROUNDED_DECLARE
