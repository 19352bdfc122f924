/* Packs plain numbers. The speed of this transposition is the speed at which such a checkpoint
 * loads. Rows are often a multiple of 4 KiB apart, so the same columns of all rows share one set
 * of the cache. Each cache line is therefore read once and as a whole, for eight rows at a time. */
#include "kernels/cpu/pack/plain.h"

#include <string.h>

enum { LINE_K = 32 }; /* number of 2-byte numbers in a cache line */

typedef uint16_t v8 __attribute__((vector_size(16)));

/* Interleaves a and b: the first halves into *low, the second halves into *high. */
static inline void interleave(v8 a, v8 b, v8 *low, v8 *high)
{
    *low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    *high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

/* Transposes 8 x 8 numbers. Three times, it interleaves row i with row i + 4. */
static inline void transpose_8(v8 r[8])
{
    v8 t[8];
    for (int stage = 0; stage < 3; stage++) {
        for (int i = 0; i < 4; i++)
            interleave(r[i], r[i + 4], &t[2 * i], &t[2 * i + 1]);
        memcpy(r, t, sizeof t);
    }
}

/* Packs 32 k of 16 rows of 2-byte numbers. */
static void pack_lines(uint8_t *to, const uint8_t *from, uint64_t stride_bytes)
{
    for (uint32_t first = 0; first < PANEL_N; first += 8) {
        for (uint32_t k = 0; k < LINE_K; k += 8) {
            v8 r[8];
            for (uint32_t i = 0; i < 8; i++)
                memcpy(&r[i], from + (uint64_t)(first + i) * stride_bytes + 2 * k, sizeof r[i]);
            transpose_8(r);
            for (uint32_t j = 0; j < 8; j++)
                memcpy(to + ((k + j) * PANEL_N + first) * 2, &r[j], sizeof r[j]);
        }
    }
}

typedef uint32_t v4 __attribute__((vector_size(16)));

/* Transposes 4 x 4 words. Twice, it interleaves row i with row i + 2. */
static inline void transpose_4(v4 r[4])
{
    for (int stage = 0; stage < 2; stage++) {
        const v4 a = __builtin_shufflevector(r[0], r[2], 0, 4, 1, 5),
                 b = __builtin_shufflevector(r[0], r[2], 2, 6, 3, 7),
                 c = __builtin_shufflevector(r[1], r[3], 0, 4, 1, 5),
                 d = __builtin_shufflevector(r[1], r[3], 2, 6, 3, 7);
        r[0] = a;
        r[1] = b;
        r[2] = c;
        r[3] = d;
    }
}

/* Packs 32 k of 16 rows as 16 pairs, which are words with their halves exchanged. */
static void pack_line_pairs(uint8_t *to, const uint8_t *from, uint64_t stride_bytes)
{
    for (uint32_t first = 0; first < PANEL_N; first += 4) {
        for (uint32_t pair = 0; pair < LINE_K / 2; pair += 4) {
            v4 r[4];
            for (uint32_t i = 0; i < 4; i++) {
                memcpy(&r[i], from + (uint64_t)(first + i) * stride_bytes + 4 * pair, sizeof r[i]);
                r[i] = r[i] << 16 | r[i] >> 16;
            }
            transpose_4(r);
            for (uint32_t j = 0; j < 4; j++)
                memcpy(to + ((pair + j) * PANEL_N + first) * 4, &r[j], sizeof r[j]);
        }
    }
}

/* Returns the place of input k of output i, for 2-byte numbers in pairs of k. */
static uint32_t in_pairs(uint32_t k, uint32_t n_k, uint32_t i)
{
    const bool is_single = k % 2 == 0 && k + 1 == n_k;
    return is_single ? k * PANEL_N + i : k / 2 * 2 * PANEL_N + 2 * i + !(k % 2);
}

/* Packs 16 k at a time, so that whole cache lines are written. */
static void pack_tiles(uint8_t *to, const struct weight_rows *from, uint32_t n_rows, uint32_t begin,
                       uint32_t end, enum pack_plain_as as)
{
    const uint32_t elem_bytes = as == PACK_WORDS ? 4 : 2;
    for (; begin < end; begin += 16) {
        uint32_t n = end - begin < 16 ? end - begin : 16;
        uint8_t *tile = to + (uint64_t)begin * PANEL_N * elem_bytes;
        if (n_rows < PANEL_N)
            memset(tile, 0, (size_t)n * PANEL_N * elem_bytes);
        for (uint32_t i = 0; i < n_rows; i++) {
            const uint8_t *row = from->ptr + i * from->stride_bytes + (uint64_t)begin * elem_bytes;
            for (uint32_t j = 0; j < n; j++) {
                if (as == PACK_PAIRS)
                    memcpy(tile + in_pairs(j, n, i) * 2, row + j * 2, 2);
                else if (as == PACK_HALVES)
                    memcpy(tile + (j * PANEL_N + i) * 2, row + j * 2, 2);
                else
                    memcpy(tile + (j * PANEL_N + i) * 4, row + j * 4, 4);
            }
        }
    }
}

void pack_plain(uint8_t *to, const struct weight_rows *from, uint32_t n_rows, uint32_t k,
                enum pack_plain_as as)
{
    uint32_t done = 0;
    if (n_rows == PANEL_N && as != PACK_WORDS)
        for (; done + LINE_K <= k; done += LINE_K) {
            uint8_t *lines = to + (uint64_t)done * PANEL_N * 2;
            if (as == PACK_PAIRS)
                pack_line_pairs(lines, from->ptr + 2ull * done, from->stride_bytes);
            else
                pack_lines(lines, from->ptr + 2ull * done, from->stride_bytes);
        }
    pack_tiles(to, from, n_rows, done, k, as);
}
