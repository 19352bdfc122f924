#pragma once
/* Declares the packing of plain numbers, which are stored unchanged. This header is private to
 * kernels/cpu. */
#include "kernels/cpu/kernels.h"

/* `pack_plain_as` selects whether numbers have four bytes, two bytes, or two bytes in pairs
 * (F32, F16 and BF16 in kernels/cpu/pack/pack.h). */
enum pack_plain_as { PACK_WORDS, PACK_HALVES, PACK_PAIRS };

/* Packs [row][k] into a panel. Rows beyond n_rows become zeros. */
void pack_plain(uint8_t *to, const struct weight_rows *from, uint32_t n_rows, uint32_t k,
                enum pack_plain_as as);
