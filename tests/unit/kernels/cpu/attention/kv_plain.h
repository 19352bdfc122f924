#pragma once
/* Computes the numbers that the KV cache returns, directly from the definitions of the formats. */
#include <math.h>
#include <stdint.h>

#include "kernels/host/f16.h"
#include "kernels/kv_layout.h"

/* Rounds x to `bits` bits behind the first bit, or to a multiple of 2^least if that is coarser. */
static inline float kv_plain_round(float x, int bits, int least)
{
    int last = x == 0 ? least : ilogbf(x) - bits;
    last = last > least ? last : least;
    return ldexpf(rintf(ldexpf(x, -last)), last);
}

/* Rounds n numbers that share a scale if the format has one. Codes are x * (largest code /
 * largest magnitude), both rounded to float. */
static inline void kv_plain(float *x, uint32_t n, enum dtype dtype)
{
    float most = 0, largest_code = dtype == DTYPE_I8 ? 127 : 448;
    for (uint32_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    for (uint32_t i = 0; i < n; i++) {
        if (dtype == DTYPE_F16)
            x[i] = f32_from_f16(f16_from_f32(x[i]));
        else if (dtype == DTYPE_BF16)
            x[i] = kv_plain_round(x[i], 7, -133);
        else if (dtype == DTYPE_I8)
            x[i] = rintf(x[i] * (largest_code / most)) * (most / largest_code);
        else if (dtype == DTYPE_F8_E4M3)
            x[i] = kv_plain_round(x[i] * (largest_code / most), 3, -9) * (most / largest_code);
    }
}

/* Rounds the keys or values of one token and head. A latent is rounded in its two parts. */
static inline void kv_plain_head(float *x, const struct kv_cache *kv, enum dtype dtype)
{
    kv_plain(x, kv_part_end(kv), dtype);
    kv_plain(x + kv_part_end(kv), kv->head_dim - kv_part_end(kv), dtype);
}
