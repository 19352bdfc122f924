#pragma once
/* Implements the last part of gemm.cuh's products: it adds the warps' sums and stores rows of
 * the result. */
#include "kernels/cuda/device/activation.cuh"
#include "kernels/cuda/linear/gemm_args.cuh"

/* Stores one value, with bias and rounding: output `output` for the row of activations `col`. */
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

__device__ __forceinline__ float gemm_rounded(float v)
{
    return __bfloat162float(__float2bfloat16_rn(v));
}

/* Stores output `n` of a gated product. Gate and up are rounded as two launches would store
 * them. If K is cut in the same way, a row therefore has the same bits in a pass with adapters,
 * which launches two products. */
__device__ __forceinline__ void gemm_store_gated(const gemm_args &a, uint32_t n, uint32_t col,
                                                 float gate, float up)
{
    const gemm_part &p = a.parts[0];
    if (n >= p.n)
        return;
    gate += p.bias ? p.bias[n] : 0.0f;
    up += a.parts[1].bias ? a.parts[1].bias[n] : 0.0f;
    const float v = activation_of(a.act, gemm_rounded(gate), gemm_rounded(up), a.limit);
    static_cast<uint16_t *>(p.out)[(size_t)col * p.out_stride + n] =
        __bfloat16_as_ushort(__float2bfloat16_rn(v));
}

/* Stores the block's `outputs` outputs from `first` on; sum(col, row) returns each sum. In a
 * gated product, 16 outputs of the gate alternate with the same 16 of up. */
template <class Sum>
__device__ __forceinline__ void gemm_store_all(const gemm_args &a, uint32_t first, uint32_t outputs,
                                               const Sum &sum)
{
    const uint32_t all = a.n_tiles * GPU_TILE_N, n = a.is_gated ? outputs / 2 : outputs;
    for (uint32_t i = threadIdx.x; i < a.n_rows * n; i += GEMM_THREADS) {
        const uint32_t col = i / n, own = i % n;
        const uint32_t row = a.is_gated ? own + own / GPU_TILE_N * GPU_TILE_N : own;
        if (first + row >= all)
            continue;
        const float v = sum(col, row);
        if (a.is_gated)
            gemm_store_gated(a, first / 2 + own, col, v, sum(col, row + GPU_TILE_N));
        else
            gemm_store(a, first + row, col, v);
    }
}

/* Adds the sums of the warps along K, then those of the blocks along K. */
template <uint32_t NB, uint32_t MT>
__device__ __forceinline__ void gemm_finish(const gemm_args &a, const float (&sums)[MT][NB][4],
                                            float *room)
{
    __shared__ uint32_t n_arrived;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t warps_n = GEMM_WARPS / a.warps_k, outputs = warps_n * MT * GPU_TILE_N;
    const uint32_t warp_n = warp / a.warps_k, warp_k = warp % a.warps_k;
    /* with this stride, the lanes of a store have no bank conflict */
    const uint32_t line = outputs + 4;
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
    const auto own_sum = [&](uint32_t col, uint32_t row) {
        float v = 0.0f;
        for (uint32_t j = 0; j < a.warps_k; j++)
            v += room[j * plane + col * line + row];
        return v;
    };
    if (gridDim.y == 1) {
        gemm_store_all(a, first, outputs, own_sum);
        return;
    }
    for (uint32_t i = threadIdx.x; i < a.n_rows * outputs; i += GEMM_THREADS) {
        const uint32_t col = i / outputs, row = i % outputs;
        if (first + row < all)
            a.partial[((size_t)blockIdx.y * a.n_rows + col) * all + first + row] =
                own_sum(col, row);
    }
    __threadfence(); /* partial sums become visible before the arrival */
    __syncthreads();
    if (threadIdx.x == 0)
        n_arrived = atomicAdd(&a.arrived[blockIdx.x], 1u);
    __syncthreads();
    if (n_arrived != gridDim.y - 1)
        return;
    __threadfence(); /* arrivals are read before the sums of other blocks */
    gemm_store_all(a, first, outputs, [&](uint32_t col, uint32_t row) {
        float v = 0.0f;
        for (uint32_t j = 0; j < gridDim.y; j++)
            v += __ldcg(&a.partial[((size_t)j * a.n_rows + col) * all + first + row]);
        return v;
    });
    if (threadIdx.x == 0)
        a.arrived[blockIdx.x] = 0;
}
