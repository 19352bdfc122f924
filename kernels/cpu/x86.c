/* The file is empty on other architectures. */
#ifdef __x86_64__
#include "kernels/cpu/x86.h"

#include <cpuid.h>
#include <stdint.h>

enum { EAX, EBX, ECX, EDX };
enum { OSXSAVE = 1 << 27 }; /* CPUID.1:ECX: the system has enabled XGETBV */
/* Bits of XCR0: registers that the system saves when it changes threads. */
enum { AVX_STATE = 0x6, AVX512_STATE = 0xe6, TILE_STATE = 0x60000 };

static const struct {
    uint32_t leaf, subleaf;
    uint8_t reg, bit;
    uint32_t state;
} features[] = {
    [X86_FMA] = {1, 0, ECX, 12, AVX_STATE},
    [X86_F16C] = {1, 0, ECX, 29, AVX_STATE},
    [X86_AVX2] = {7, 0, EBX, 5, AVX_STATE},
    [X86_AVX512F] = {7, 0, EBX, 16, AVX512_STATE},
    [X86_AVX512DQ] = {7, 0, EBX, 17, AVX512_STATE},
    [X86_AVX512BW] = {7, 0, EBX, 30, AVX512_STATE},
    [X86_AVX512VL] = {7, 0, EBX, 31, AVX512_STATE},
    [X86_AVX512_VNNI] = {7, 0, ECX, 11, AVX512_STATE},
    [X86_AVX512_BF16] = {7, 1, EAX, 5, AVX512_STATE},
    [X86_AVX_VNNI] = {7, 1, EAX, 4, AVX_STATE},
    [X86_AMX_TILE] = {7, 0, EDX, 24, TILE_STATE},
    [X86_AMX_INT8] = {7, 0, EDX, 25, TILE_STATE},
};

static uint32_t saved_state(void)
{
    uint32_t regs[4], low, high;
    if (!__get_cpuid(1, &regs[EAX], &regs[EBX], &regs[ECX], &regs[EDX]) || !(regs[ECX] & OSXSAVE))
        return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool x86_has(enum x86_feature feature)
{
    uint32_t regs[4];
    if (!__get_cpuid_count(features[feature].leaf, features[feature].subleaf, &regs[EAX],
                           &regs[EBX], &regs[ECX], &regs[EDX]))
        return false;
    const uint32_t state = features[feature].state;
    return (regs[features[feature].reg] >> features[feature].bit & 1) != 0 &&
           (saved_state() & state) == state;
}
#endif
