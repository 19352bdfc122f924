#pragma once
/* Declares the conversion of packed weights to bfloat16, for products of many rows: the C ABI of
 * dequantise.cu. Calls enqueue work, as in device/abi.h. */
#include "kernels/cuda/device/abi.h"
#include "kernels/cuda/weights/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes n_tiles row tiles from first_tile on in bfloat16. Row i of the result begins at element
 * i * padded_k of `to`, with padded_k as for BF16. */
MUST_USE enum status cuda_dequantise(struct gpu_stream *s, const struct gpu_matrix *w,
                                     uint32_t first_tile, uint32_t n_tiles, void *to,
                                     struct error *err);

#ifdef __cplusplus
}
#endif
