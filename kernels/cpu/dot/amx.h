#pragma once
/* Wraps the tiles of Intel's AMX (Software Developer's Manual, volume 1, chapter 18) as
 * amx_impl.h needs them. The functions are written in assembly, because gcc's intrinsics declare
 * wrong memory accesses. _tile_loadconfig declares 8 of its 64 bytes and _tile_loadd none, so
 * the compiler drops the stores before these calls. */
#include <stdint.h>

/* The AMX_ constants are the numbers of the tile registers. Groups alternate between A and B:
 * one group is multiplied while the other group is stored. */
#define AMX_SUMS_A        0
#define AMX_SECOND_SUMS_A 1 /* tile register for the sums of the second half of a group */
#define AMX_SUMS_B        2
#define AMX_SECOND_SUMS_B 3
#define AMX_ROWS_A        4 /* tile register for the codes of rows */
#define AMX_ROWS_B        5
#define AMX_CODES_A       6 /* tile register for the codes of weights */
#define AMX_CODES_B       7
enum { AMX_N_SUMS = 4 };

struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t n_rows[16];
};

/* Configures the tiles to multiply 16 rows of n_inputs inputs by n_inputs inputs of 16 outputs. */
static inline void amx_begin(uint32_t n_inputs)
{
    struct amx_config c = {.palette = 1};
    for (uint32_t i = 0; i < AMX_N_SUMS; i++) {
        c.row_bytes[i] = 16 * sizeof(int32_t);
        c.n_rows[i] = 16;
    }
    for (uint32_t i = 0; i < 2; i++) {
        c.row_bytes[AMX_ROWS_A + i] = (uint16_t)n_inputs;
        c.n_rows[AMX_ROWS_A + i] = 16;
        c.row_bytes[AMX_CODES_A + i] = 64;
        c.n_rows[AMX_CODES_A + i] = (uint8_t)(n_inputs / 4);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(c));
}
/* Releases the tiles, so that a context switch saves less state of the thread. */
static inline void amx_end(void)
{
    __asm__ volatile("tilerelease");
}

#define AMX_TEXT2(number) #number
#define AMX_TEXT(number)  AMX_TEXT2(number)
#define AMX_TILE(number)  "%%tmm" AMX_TEXT(number)
#define AMX_LOAD(tile, p, stride)                                                                  \
    __asm__ volatile("tileloadd (%0,%1,1), " AMX_TILE(tile)                                        \
                     :                                                                             \
                     : "r"(p), "r"((uint64_t)(stride))                                             \
                     : "memory")
/* Computes sums = rows * codes; the bytes are signed on both sides. */
#define AMX_MULTIPLY(sums, rows, codes)                                                            \
    __asm__ volatile("tilezero " AMX_TILE(sums) "\n\t"                                             \
                                                "tdpbssd " AMX_TILE(codes) ", " AMX_TILE(          \
                                                    rows) ", " AMX_TILE(sums)                      \
                     :                                                                             \
                     :)
#define AMX_STORE(tile, p, stride)                                                                 \
    __asm__ volatile("tilestored " AMX_TILE(tile) ", (%0,%1,1)"                                    \
                     :                                                                             \
                     : "r"(p), "r"((uint64_t)(stride))                                             \
                     : "memory")
