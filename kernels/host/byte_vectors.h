#pragma once
/* Defines vectors of 16 bytes, which every processor has, and their transposition. blocks.c and
 * both packers of the CPU backend (kernels/cpu/pack, kernels/cpu/dot) use them. */
#include <stdint.h>

typedef uint8_t vb __attribute__((vector_size(16)));
typedef uint32_t vw __attribute__((vector_size(16)));

enum { PACK_LINE = 64, PACK_READ_AHEAD = 192, PACK_WRITE_AHEAD = 2048 };

/* Prefetches the part of a row that is read soon. The processor's own prefetch does not cover 16
 * rows at once, or lines that are written in parts. */
static inline void pack_ask_to_read(const uint8_t *row, uint64_t ahead, uint32_t n_bytes)
{
    for (uint32_t at = 0; at < n_bytes; at += PACK_LINE)
        __builtin_prefetch(row + ahead + at);
}
static inline void pack_ask_to_write(const uint8_t *to, uint32_t n_bytes)
{
    for (uint32_t at = 0; at < n_bytes + PACK_LINE; at += PACK_LINE)
        __builtin_prefetch(to + PACK_WRITE_AHEAD + at, 1);
}
/* Returns the prefetch distance, at which a block arrives before it is read. */
static inline uint32_t pack_read_ahead(uint32_t block_bytes)
{
    return block_bytes < PACK_READ_AHEAD ? PACK_READ_AHEAD : block_bytes;
}

/* Interleaves the bytes of the first halves of a and b. The next function interleaves the second
 * halves. */
static inline vb bytes_low_in_turns(vb a, vb b)
{
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
static inline vb bytes_high_in_turns(vb a, vb b)
{
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
}

/* Executes one stage of the transposition: interleaves vector i with vector i + 8. Four stages
 * transpose 16 vectors. */
static inline void transpose_bytes_stage(vb *to, const vb *from)
{
    for (int i = 0; i < 8; i++) {
        to[2 * i] = bytes_low_in_turns(from[i], from[i + 8]);
        to[2 * i + 1] = bytes_high_in_turns(from[i], from[i + 8]);
    }
}

/* Swaps byte k of v[i] with byte i of v[k]. */
static inline void transpose_bytes(vb v[16])
{
    vb tmp[16];
    transpose_bytes_stage(tmp, v);
    transpose_bytes_stage(v, tmp);
    transpose_bytes_stage(tmp, v);
    transpose_bytes_stage(v, tmp);
}
