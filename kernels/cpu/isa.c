/* Finds the levels that this CPU and its operating system support, and names all levels. */
#include "kernels/cpu/cpu.h"

#include <string.h>
#ifndef __aarch64__
#include <cpuid.h>
#endif

#ifdef __aarch64__
enum cpu_isa cpu_isa_best(void)
{
    return CPU_ISA_NEON; /* every arm64 CPU has NEON */
}
#else
/* Returns whether the CPU has F16C. It reads CPUID directly, because not all compilers accept
 * the name F16C. F16C also requires that the system saves AVX state, which the check of AVX2
 * includes. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

enum cpu_isa cpu_isa_best(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
        return CPU_ISA_SCALAR;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return CPU_ISA_AVX2;
    return CPU_ISA_AVX512;
}
#endif

/* `known` holds the names of the levels of all architectures. */
static const char *const known[] = {"scalar", "avx2", "avx512", "neon"};
enum { N_KNOWN = sizeof known / sizeof *known, ELSEWHERE = 100 };

const char *cpu_isa_name(enum cpu_isa isa)
{
#define NAME(upper, lower) [CPU_ISA_##upper] = #lower,
    static const char *const names[CPU_ISA_COUNT] = {CPU_LEVELS(NAME)};
    uint32_t i = (uint32_t)isa;
    if (i < CPU_ISA_COUNT)
        return names[i];
    return i >= ELSEWHERE && i - ELSEWHERE < N_KNOWN ? known[i - ELSEWHERE] : "unknown";
}

int32_t cpu_isa_named(const char *name)
{
    for (int32_t i = 0; i < CPU_ISA_COUNT; i++)
        if (strcmp(name, cpu_isa_name((enum cpu_isa)i)) == 0)
            return i;
    for (int32_t i = 0; i < N_KNOWN; i++)
        if (strcmp(name, known[i]) == 0)
            return ELSEWHERE + i;
    return -1;
}
