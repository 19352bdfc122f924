#pragma once
/* Implements vf_transpose16(vf v[16]), which swaps lane k of v[i] with lane i of v[k]. The
 * function uses the vf of the vec/ISA.h that was included before. */
#include <string.h>

#if defined __AVX512F__
/* Transposes pairs, then groups of four within each quarter, then the quarters. */
static inline void vf_transpose16(vf v[16])
{
    for (int i = 0; i < 16; i += 4) {
        __m512d a[4];
        for (int k = 0; k < 2; k++) {
            const vf x = v[i + 2 * k], y = v[i + 2 * k + 1];
            a[k] = _mm512_castps_pd(_mm512_unpacklo_ps(x, y));
            a[k + 2] = _mm512_castps_pd(_mm512_unpackhi_ps(x, y));
        }
        for (int k = 0; k < 2; k++) {
            v[i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(a[2 * k], a[2 * k + 1]));
            v[i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a[2 * k], a[2 * k + 1]));
        }
    }
    for (int i = 0; i < 4; i++) {
        const vf even0 = _mm512_shuffle_f32x4(v[i], v[i + 4], 0x88),
                 even1 = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0x88),
                 odd0 = _mm512_shuffle_f32x4(v[i], v[i + 4], 0xdd),
                 odd1 = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0xdd);
        v[i] = _mm512_shuffle_f32x4(even0, even1, 0x88);
        v[i + 4] = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
        v[i + 8] = _mm512_shuffle_f32x4(even0, even1, 0xdd);
        v[i + 12] = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
    }
}
#elif defined __AVX2__
/* Transposes eight rows of eight: first pairs, then groups of four within each half, then the
 * halves. */
static inline void vec_transpose8(__m256 v[8])
{
    for (int i = 0; i < 8; i += 4) {
        __m256d a[4];
        for (int k = 0; k < 2; k++) {
            const __m256 x = v[i + 2 * k], y = v[i + 2 * k + 1];
            a[k] = _mm256_castps_pd(_mm256_unpacklo_ps(x, y));
            a[k + 2] = _mm256_castps_pd(_mm256_unpackhi_ps(x, y));
        }
        for (int k = 0; k < 2; k++) {
            v[i + 2 * k] = _mm256_castpd_ps(_mm256_unpacklo_pd(a[2 * k], a[2 * k + 1]));
            v[i + 2 * k + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a[2 * k], a[2 * k + 1]));
        }
    }
    for (int i = 0; i < 4; i++) {
        const __m256 x = v[i], y = v[i + 4];
        v[i] = _mm256_permute2f128_ps(x, y, 0x20);
        v[i + 4] = _mm256_permute2f128_ps(x, y, 0x31);
    }
}
static inline void vf_transpose16(vf v[16])
{
    __m256 quarter[4][8];
    for (int i = 0; i < 8; i++) {
        quarter[0][i] = v[i].lo;
        quarter[1][i] = v[i].hi;
        quarter[2][i] = v[i + 8].lo;
        quarter[3][i] = v[i + 8].hi;
    }
    for (int k = 0; k < 4; k++)
        vec_transpose8(quarter[k]);
    for (int i = 0; i < 8; i++) {
        v[i] = (vf){quarter[0][i], quarter[2][i]};
        v[i + 8] = (vf){quarter[1][i], quarter[3][i]};
    }
}
#else
static inline void vf_transpose16(vf v[16])
{
    float rows[16][16], columns[16][16];
    memcpy(rows, v, sizeof rows);
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            columns[i][k] = rows[k][i];
    memcpy(v, columns, sizeof columns);
}
#endif
