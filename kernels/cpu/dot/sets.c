/* Detects which sets of kernels this CPU and its operating system support. */
#include "kernels/cpu/dot/sets.h"

#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#else
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Returns whether the CPU has the features that a set needs beyond its level. */
#ifdef __aarch64__
static bool has_more(const struct dot_kernels *kernels)
{
    if (kernels == &dot_kernels_neon_dotprod)
        return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
    return kernels != &dot_kernels_neon_i8mm ||
           ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) && (getauxval(AT_HWCAP2) & HWCAP2_I8MM));
}
#else
/* Returns whether the CPU has AVX-VNNI, which has a separate CPUID leaf. The check of the level
 * has already verified that the system saves the registers. */
static bool has_avx_vnni(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 4 & 1) != 0;
}
static bool has_avx512_vnni(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vnni");
}
/* Returns whether the CPU has AMX and Linux permits its use to this process. Linux reserves 8
 * KiB of tile state for each thread after this request (Documentation/arch/x86/xstate.rst). */
static bool has_amx(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18, TILE_AND_INT8 = 3 << 24 };
    unsigned eax, ebx, ecx, edx;
    return has_avx512_vnni() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) &&
           (edx & TILE_AND_INT8) == TILE_AND_INT8 &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
static bool has_more(const struct dot_kernels *kernels)
{
    if (kernels == &dot_kernels_avx512_amx)
        return has_amx();
    if (kernels == &dot_kernels_avx512_vnni)
        return has_avx512_vnni();
    return kernels != &dot_kernels_avx2_vnni || has_avx_vnni();
}
#endif

#define DOT_SET(set, level) {&dot_kernels_##set, CPU_ISA_##level},
static const struct {
    const struct dot_kernels *kernels;
    enum cpu_isa level;
} dot_sets[] = {DOT_SETS(DOT_SET)};
enum { N_SETS = sizeof dot_sets / sizeof *dot_sets };

bool dot_kernels_run(const struct dot_kernels *kernels)
{
    for (uint32_t i = 0; i < N_SETS; i++)
        if (dot_sets[i].kernels == kernels)
            return dot_sets[i].level <= cpu_isa_best() && has_more(kernels);
    return false;
}

const struct dot_kernels *dot_kernels_of(enum cpu_isa isa, bool level_only)
{
    const struct dot_kernels *best = &dot_kernels_scalar;
    for (uint32_t i = 0; i < N_SETS; i++)
        if (dot_sets[i].level == isa && (!level_only || !dot_sets[i].kernels->name) &&
            has_more(dot_sets[i].kernels))
            best = dot_sets[i].kernels;
    return best;
}
