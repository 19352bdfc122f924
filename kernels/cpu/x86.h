#pragma once
/* Says which instructions an x86-64 CPU has and its operating system permits (Intel, "Software
 * Developer's Manual", volume 2, CPUID and XGETBV). The answer comes from CPUID and not from
 * __builtin_cpu_supports: with some compilers that function always says no (zig 0.17). */
#include <stdbool.h>

enum x86_feature {
    X86_FMA,
    X86_F16C,
    X86_AVX2,
    X86_AVX512F,
    X86_AVX512DQ,
    X86_AVX512BW,
    X86_AVX512VL,
    X86_AVX512_VNNI,
    X86_AVX512_BF16,
    X86_AVX_VNNI,
    X86_AMX_TILE, /* Linux also wants a request: see dot/sets.c */
    X86_AMX_INT8,
};

/* Any thread. */
bool x86_has(enum x86_feature feature);
