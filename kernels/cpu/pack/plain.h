#pragma once
/* Private to kernels/cpu: panels of numbers that are stored as they are. */
#include "kernels/cpu/kernels.h"

/* Numbers of four bytes, of two, of two in pairs (kernels/cpu/pack/pack.h: F32, F16, BF16). */
enum pack_plain_as { PACK_WORDS, PACK_HALVES, PACK_PAIRS };

/* [row][k] to a panel; rows beyond n_rows are zeros. */
void pack_plain(uint8_t *to, const struct weight_rows *from, uint32_t n_rows, uint32_t k,
                enum pack_plain_as as);
