#pragma once
/* Packs the loader's rows into the layout of layout.h, on the host. The device multiplies with
 * the numbers of the file, with two exceptions: F32 and F16 are rounded to bfloat16, and scales
 * that are products of two (the 4-bit K formats) are rounded to float16. */
#include "kernels/cuda/weights/layout.h"

/* Packs row tile i_tile of m into `to`, which has tile_bytes. `rows` are the rows of the whole
 * matrix, in dtype's own layout. Several threads may pack tiles at once. */
void gpu_pack_tile(const struct gpu_matrix *m, enum dtype dtype, const struct weight_rows *rows,
                   uint32_t i_tile, uint8_t *to);
