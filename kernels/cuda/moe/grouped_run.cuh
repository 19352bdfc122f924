#pragma once
#include "kernels/cuda/moe/grouped.cuh"

/* Launches one of the two kernels, chosen by tile_rows. */
static inline cudaError_t grouped_run(const struct gpu_stream *s, const struct grouped_args &a,
                                      uint32_t n_multiprocessors)
{
    return a.tile_rows == GROUPED_LARGE_ROWS ? grouped_large(s, a)
                                             : grouped_small(s, a, n_multiprocessors);
}
