#pragma once
/* Private to kernels/cpu: panels of numbers that are stored as they are. */
#include "kernels/cpu/isa.h"

/* [row][k] to [k][16]; rows beyond n_rows are zeros. elem_bytes: 2 or 4. */
void pack_plain(uint8_t *to, const struct weight_rows *from, uint32_t n_rows, uint32_t k,
                uint32_t elem_bytes);
