/* Finds the levels that this CPU and its operating system support, and names all levels. */
#include "kernels/cpu/cpu.h"

#include <string.h>

#include "kernels/cpu/x86.h"

#ifdef __aarch64__
enum cpu_isa cpu_isa_best(void)
{
    return CPU_ISA_NEON; /* every arm64 CPU has NEON */
}
#else
enum cpu_isa cpu_isa_best(void)
{
    if (!x86_has(X86_AVX2) || !x86_has(X86_FMA) || !x86_has(X86_F16C))
        return CPU_ISA_SCALAR;
    if (!x86_has(X86_AVX512F) || !x86_has(X86_AVX512BW) || !x86_has(X86_AVX512VL) ||
        !x86_has(X86_AVX512DQ))
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
