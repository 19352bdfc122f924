/* Detects which sets of kernels this CPU and its operating system support. */
#include "kernels/cpu/dot/sets.h"

#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#else
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/cpu/x86.h"

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
/* Returns whether the CPU has AMX and Linux permits its use to this process. Linux reserves 8
 * KiB of tile state for each thread after this request (Documentation/arch/x86/xstate.rst). */
static bool has_amx(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return x86_has(X86_AVX512_VNNI) && x86_has(X86_AMX_TILE) && x86_has(X86_AMX_INT8) &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
static bool has_more(const struct dot_kernels *kernels)
{
    if (kernels == &dot_kernels_avx512_amx)
        return has_amx();
    if (kernels == &dot_kernels_avx512_vnni)
        return x86_has(X86_AVX512_VNNI);
    return kernels != &dot_kernels_avx2_vnni || x86_has(X86_AVX_VNNI);
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
