#pragma once
/* From the loader's rows to the layout of layout.h, on the host. Sums of products on the device are
 * those of the file's numbers, but for what the table there leaves out: F32 and F16 are rounded to
 * bfloat16, and scales that are products of two (of the K formats in 4 bits) to float16. */
#include "kernels/cuda/weights/layout.h"

/* Row tile i_tile of m, tile_bytes of them, to `to`. rows: of the matrix, in dtype's own layout.
 * Tiles may be packed by several threads at once. */
void gpu_pack_tile(const struct gpu_matrix *m, enum dtype dtype, const struct weight_rows *rows,
                   uint32_t i_tile, uint8_t *to);
