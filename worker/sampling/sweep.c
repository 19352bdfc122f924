#include "worker/sampling/sweep.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "worker/sampling/philox.h"

#define INLINE static inline __attribute__((always_inline))

INLINE bool reaches(const float *logits, uint32_t n, double limit)
{
    const float at = (float)limit; /* `at` may be rounded above limit, hence the step down below */
    const float below = at - fabsf(at) * 0x1p-22f;
    uint32_t any = 0;
    for (uint32_t i = 0; i < n; i++)
        any |= !(logits[i] < below);
    return any;
}

/* Computes exp(-d) from d = n ln 2 + r with |r| <= ln(2) / 2, where ln 2 has two parts (Cody &
 * Waite 1980). exp(-r) is a series up to the 13th power, and 2^-n is set in the exponent bits. */
INLINE void exps(double d[SWEEP_BLOCK])
{
    /* adding to_whole rounds to a whole number in the low bits */
    static const double to_whole = 0x1.8p52;
    for (uint32_t i = 0; i < SWEEP_BLOCK; i++) {
        double x = d[i] < 705.0 ? d[i] : 705.0;
        double shifted = x * -1.44269504088896341 + to_whole, n = shifted - to_whole;
        double r = (-x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
        double p = 1.0 / 6227020800;
        p = p * r + 1.0 / 479001600;
        p = p * r + 1.0 / 39916800;
        p = p * r + 1.0 / 3628800;
        p = p * r + 1.0 / 362880;
        p = p * r + 1.0 / 40320;
        p = p * r + 1.0 / 5040;
        p = p * r + 1.0 / 720;
        p = p * r + 1.0 / 120;
        p = p * r + 1.0 / 24;
        p = p * r + 1.0 / 6;
        p = p * r + 0.5;
        p = p * r + 1.0;
        p = p * r + 1.0;
        uint64_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        bits = (bits << 52) + (UINT64_C(1023) << 52);
        double scale;
        memcpy(&scale, &bits, sizeof scale);
        d[i] = p * scale;
    }
}

/* Runs philox4x32_10 for sixteen counters side by side. */
INLINE uint32_t most_bits(const uint32_t key[2], const uint32_t first_counter[4])
{
    enum { N = SWEEP_BLOCK / 4 };
    uint32_t c0[N], c1[N], c2[N], c3[N], k0 = key[0], k1 = key[1], most = 0;
    for (uint32_t i = 0; i < N; i++) {
        c0[i] = first_counter[0] + i;
        c1[i] = first_counter[1];
        c2[i] = first_counter[2];
        c3[i] = first_counter[3];
    }
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        for (uint32_t i = 0; i < N; i++) {
            uint64_t p0 = (uint64_t)PHILOX_M0 * c0[i], p1 = (uint64_t)PHILOX_M1 * c2[i];
            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c1[i] = (uint32_t)p1;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c3[i] = (uint32_t)p0;
        }
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    for (uint32_t i = 0; i < N; i++) {
        uint32_t a = c0[i] > c1[i] ? c0[i] : c1[i], b = c2[i] > c3[i] ? c2[i] : c3[i];
        a = a > b ? a : b;
        most = most > a ? most : a;
    }
    return most;
}

/* ---- one version per register width ---- */

struct sweep {
    bool (*reaches)(const float *logits, uint32_t n, double limit);
    void (*exps)(double d[SWEEP_BLOCK]);
    uint32_t (*most_bits)(const uint32_t key[2], const uint32_t first_counter[4]);
};
#define SWEEP(name, target_)                                                                       \
    target_ static bool reaches_##name(const float *logits, uint32_t n, double limit)              \
    {                                                                                              \
        return reaches(logits, n, limit);                                                          \
    }                                                                                              \
    target_ static void exps_##name(double d[SWEEP_BLOCK])                                         \
    {                                                                                              \
        exps(d);                                                                                   \
    }                                                                                              \
    target_ static uint32_t most_bits_##name(const uint32_t key[2],                                \
                                             const uint32_t first_counter[4])                      \
    {                                                                                              \
        return most_bits(key, first_counter);                                                      \
    }                                                                                              \
    static const struct sweep sweep_##name = {reaches_##name, exps_##name, most_bits_##name};

SWEEP(plain, )
#ifdef __x86_64__
SWEEP(avx2, __attribute__((target("avx2"))))
#ifdef __clang__
#define WHOLE_REGISTERS
#else
#define WHOLE_REGISTERS ",prefer-vector-width=512"
#endif
SWEEP(avx512, __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq" WHOLE_REGISTERS))))
static const struct sweep *sweep_of(enum sweep_width most)
{
    if (most >= SWEEP_AVX512 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return &sweep_avx512;
    return most >= SWEEP_AVX2 && __builtin_cpu_supports("avx2") ? &sweep_avx2 : &sweep_plain;
}
#else
static const struct sweep *sweep_of(enum sweep_width most)
{
    return &sweep_plain;
}
#endif

static _Atomic(const struct sweep *) chosen = &sweep_plain;

void sweep_limit(enum sweep_width most)
{
    atomic_store_explicit(&chosen, sweep_of(most), memory_order_release);
}
static const struct sweep *sweep_now(void)
{
    return atomic_load_explicit(&chosen, memory_order_acquire);
}

bool sweep_reaches(const float *logits, uint32_t n, double limit)
{
    return sweep_now()->reaches(logits, n, limit);
}
void sweep_exps(double d[SWEEP_BLOCK])
{
    sweep_now()->exps(d);
}
uint32_t sweep_most_bits(const uint32_t key[2], const uint32_t first_counter[4])
{
    return sweep_now()->most_bits(key, first_counter);
}
