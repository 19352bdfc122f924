#pragma once
/* Of gemm.cuh: from the warps' sums to rows of the result. */
#include "kernels/cuda/gemm_args.cuh"

/* The value of output `row` of a block's row tiles for activations `col`: bias, rounding. */
__device__ __forceinline__ void gemm_store(const gemm_args &a, uint32_t output, uint32_t col,
                                           float v)
{
    const uint32_t tile = output / GPU_TILE_N;
    uint32_t i = 0;
#pragma unroll
    for (uint32_t j = 1; j < GEMM_MAX_PARTS; j++)
        i = j < a.n_parts && tile >= a.parts[j].first_tile ? j : i;
    const gemm_part &p = a.parts[i];
    const uint32_t n = output - p.first_tile * GPU_TILE_N;
    if (n >= p.n)
        return;
    v += p.bias ? p.bias[n] : 0.0f;
    const size_t at = (size_t)col * p.out_stride + n;
    if (p.to_float)
        static_cast<float *>(p.out)[at] = v;
    else
        static_cast<uint16_t *>(p.out)[at] = __bfloat16_as_ushort(__float2bfloat16_rn(v));
}

/* Adds what the warps along K have, then what the blocks along K have. */
template <uint32_t NB, uint32_t MT>
__device__ __forceinline__ void gemm_finish(const gemm_args &a, const float (&sums)[MT][NB][4],
                                            float *room)
{
    __shared__ uint32_t n_arrived;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t warps_n = GEMM_WARPS / a.warps_k, outputs = warps_n * MT * GPU_TILE_N;
    const uint32_t warp_n = warp / a.warps_k, warp_k = warp % a.warps_k;
    const uint32_t line = outputs + 4; /* lanes of a store meet in no bank */
    const uint32_t plane = a.n_rows * line;
#pragma unroll
    for (uint32_t m = 0; m < MT; m++)
#pragma unroll
        for (uint32_t nb = 0; nb < NB; nb++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t col = nb * 8 + 2 * (lane % 4) + i % 2;
                const uint32_t row = (warp_n * MT + m) * GPU_TILE_N + lane / 4 + 8 * (i / 2);
                if (col < a.n_rows)
                    room[warp_k * plane + col * line + row] = sums[m][nb][i];
            }
    __syncthreads();
    const uint32_t first = blockIdx.x * outputs, all = a.n_tiles * GPU_TILE_N;
    for (uint32_t i = threadIdx.x; i < a.n_rows * outputs; i += GEMM_THREADS) {
        const uint32_t col = i / outputs, row = i % outputs;
        float v = 0.0f;
        for (uint32_t j = 0; j < a.warps_k; j++)
            v += room[j * plane + col * line + row];
        if (first + row >= all)
            continue;
        if (gridDim.y == 1)
            gemm_store(a, first + row, col, v);
        else
            a.partial[((size_t)blockIdx.y * a.n_rows + col) * all + first + row] = v;
    }
    if (gridDim.y == 1)
        return;
    __threadfence(); /* the partial sums before the arrival */
    __syncthreads();
    if (threadIdx.x == 0)
        n_arrived = atomicAdd(&a.arrived[blockIdx.x], 1u);
    __syncthreads();
    if (n_arrived != gridDim.y - 1)
        return;
    __threadfence(); /* the arrivals before the others' sums */
    for (uint32_t i = threadIdx.x; i < a.n_rows * outputs; i += GEMM_THREADS) {
        const uint32_t col = i / outputs, row = i % outputs;
        float v = 0.0f;
        if (first + row >= all)
            continue;
        for (uint32_t j = 0; j < gridDim.y; j++)
            v += __ldcg(&a.partial[((size_t)j * a.n_rows + col) * all + first + row]);
        gemm_store(a, first + row, col, v);
    }
    if (threadIdx.x == 0)
        a.arrived[blockIdx.x] = 0;
}
