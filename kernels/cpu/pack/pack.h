#pragma once
/* Defines the layout of weights that the CPU kernels read. Outputs are cut into panels of
 * PANEL_N. A panel holds its rows side by side. One vector is one input k of 16 outputs, and a
 * sum over K is a chain of fused multiply-adds in file order. There are no horizontal sums, so
 * the bits are the same for any number of rows. A panel is one stream from its first byte to its
 * last:
 *
 *   F32, F16         [k][16]
 *   BF16             [k / 2][16] words; the even k of a pair is the high half, since dot products
 *                    of pairs add it first (rounded.h); the last k of an odd number: u16[16]
 *   Q8_0             per 32 k: d f16[16], then codes i8[32][16]
 *   Q4_0, Q5_0,      per 32 k: d f16[16], then per 8 k: nibbles u8[4][16] (byte j of row i: output
 *   IQ4_NL           j, low half k = 2i, high half k = 2i + 1), 5 bits: + u8[16], bit b = k b
 *   Q4_1, Q5_1       per 32 k: d f16[16], min f16[16], then codes as above
 *   Q4_K, Q5_K       per 256 k: d f16[16], dmin f16[16], then 8 times: scale u8[16], min u8[16],
 *                    and codes of 32 k as above
 *   INT4             per 32 k: d f16[16], zero u8[16], then nibbles as above
 *   INT2             as INT4, with codes of two bits: per 8 k u8[2][16], 4 k a byte, low bits first
 *   INT3             as INT2, and u8[16] of third bits, bit b = k b
 *   INT8             per 32 k: d f32[16], zero i8[16], then codes i8[32][16]
 *   FP8              per 32 k: d f32[16], then codes u8[32][16]
 *   MXFP4            per 32 k: exponents u8[16], then nibbles as above
 *   Q2_K             per 256 k: d f16[16], dmin f16[16], then 16 times: u8[16] (scale low half, min
 *                    high half) and 16 k of two bits
 *   Q3_K             per 256 k: d f16[16], then 16 times: scale i8[16] and 16 k of three bits
 *   Q6_K             per 256 k: d f16[16], then 16 times: scale i8[16] and 16 k: per 8 k nibbles
 *                    u8[4][16] and two high bits u8[2][16] (4 k a byte, low bits first)
 *
 * Outputs beyond n are zeros. The values are those of GGML (w = d * (q - 8), (d * sc) * q -
 * (dmin * m), ...), with the same bits except for the last step, which is fused here. */
#include "kernels/cpu/kernels.h"
#include "kernels/host/blocks.h"

/* Returns the size of one panel in bytes. Returns 0 when the dtype has no kernel or k is not a
 * whole number of its blocks. */
uint64_t pack_panel_bytes(enum dtype dtype, uint32_t k);
/* Writes panel i_panel of w into `to`; `rows` have the file's layout. */
void pack_panel(struct weight *w, const struct weight_rows *rows, uint32_t i_panel);

/* `pack_head` holds the bytes of d, dmin and zero that an output's block has in a panel, before
 * its groups. */
struct pack_head {
    uint32_t d, dmin, zero;
};
struct pack_head pack_head_of(const struct format *f);
uint8_t *pack_put_head(const struct format *f, const struct block rows[PANEL_N], uint8_t *to);
