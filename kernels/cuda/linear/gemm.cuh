#pragma once
/* Computes products with up to 64 rows of activations, bound by the reading of weights. In
 * mma.m16n8k16, M is the 16 outputs of a row tile, N is rows of activations (NB times 8), and K
 * is inputs.
 *
 * Movement of bytes: a block has 8 warps. WARPS_N of them are side by side over outputs (MT row
 * tiles each), 8 / WARPS_N over K. The outputs are divided among the blocks, and so is K if
 * there would be too few blocks (n_splits). Every lane copies 16 bytes at a time from global
 * memory into its own places of a ring in shared memory. The copies are asynchronous and
 * n_stages - 1 steps ahead. A multiprocessor therefore has 48 to 140 KB of loads in flight, and
 * no register waits for a load. Codes return to the lane that copied them, so the rings need no
 * barrier. The activations of a step are shared by the warps that have its part of K, and one
 * barrier a step serves all of these warps. Both layouts avoid bank conflicts when copying and
 * when reading. The first step's weights are copied, and the next steps' weights are prefetched
 * into the L2 cache, before the previous kernel has ended (programmatic dependent launch).
 *
 * Sums are float. A sum is computed over a warp's inputs in order, or group by group times the
 * group's scale. The sums of the warps along K are then added in order, then those of the
 * splits. The last of an output's splits to arrive adds them all; the bits do not depend on
 * which split that is.
 *
 * Gate and up of a gated MLP may be one product whose epilogue applies the activation. Row tiles
 * of gate and up alternate, so that both are in one block. Each is summed and rounded as in a
 * separate product. */
#include "kernels/cuda/linear/gemm_finish.cuh"
#include "kernels/cuda/linear/gemm_load.cuh"
#include "kernels/cuda/linear/gemm_step.cuh"

template <enum gpu_format F, uint32_t GROUP, uint32_t NB, uint32_t MT>
__global__ __launch_bounds__(GEMM_THREADS, gemm_blocks_of(NB)) void gemm_kernel(const gemm_args a)
{
    using T = gemm_traits<F, GROUP>;
    const uint32_t ahead = a.n_stages - 1;
    CUDA_DYNAMIC_SHARED(uint8_t, ring);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t warp_n = warp / a.warps_k, warp_k = warp % a.warps_k;
    constexpr uint32_t weight_bytes = MT * T::TILE_BYTES;
    const uint32_t stage_bytes = gemm_stage_bytes<F, GROUP>(MT, a);
    const uint32_t block_k = a.warps_k * T::STEP_K, x_at = GEMM_WARPS * weight_bytes;
    const uint32_t begin = (uint32_t)((uint64_t)a.n_steps * blockIdx.y / gridDim.y);
    const uint32_t end = (uint32_t)((uint64_t)a.n_steps * (blockIdx.y + 1) / gridDim.y);
    const uint32_t log_chunks = 31 - __clz(block_k / 8);
    gemm_tile tiles[MT];
#pragma unroll
    for (uint32_t m = 0; m < MT; m++)
        tiles[m] =
            gemm_tile_of<F>(a, (blockIdx.x * (GEMM_WARPS / a.warps_k) + warp_n) * MT + m, lane);

    auto load_weights = [&](uint32_t step, uint32_t stage) {
        uint8_t *to = ring + stage * stage_bytes + warp * weight_bytes + 16 * lane;
#pragma unroll
        for (uint32_t m = 0; m < MT; m++)
            gemm_load_tile<F, GROUP>(a, tiles[m], step * block_k + warp_k * T::STEP_K, lane,
                                     to + m * T::TILE_BYTES);
    };
    auto prefetch_weights = [&](uint32_t step) {
#pragma unroll
        for (uint32_t m = 0; m < MT; m++)
            gemm_prefetch_tile<F, GROUP>(a, tiles[m], step * block_k + warp_k * T::STEP_K, lane);
    };
    auto load_x = [&](uint32_t step, uint32_t stage) {
        gemm_load_x<F>(a, step * block_k, log_chunks, ring + stage * stage_bytes + x_at);
    };
    /* Only weights are read before the wait, since no kernel writes them. Only the first step's
     * weights are copied. Copies are waited for in order, so copies of later steps would delay
     * the first activations. Meanwhile the next weights are prefetched into the L2 cache, which
     * no thread waits for. */
    load_weights(begin, 0);
#pragma unroll
    for (uint32_t i = 1; i <= gemm_prefetched<F, GROUP>(NB, MT); i++)
        if (begin + i < end)
            prefetch_weights(begin + i);
    dependency_wait();
    dependency_launch();
    for (uint32_t i = 0; i < ahead; i++) {
        if (i > 0 && begin + i < end)
            load_weights(begin + i, i);
        if (begin + i < end)
            load_x(begin + i, i);
        cp_async_commit();
    }

    float sums[MT][NB][4];
#pragma unroll
    for (uint32_t m = 0; m < MT; m++)
        gemm_clear(sums[m]);
    uint32_t stage = 0;
    for (uint32_t step = begin; step < end; step++) {
        gemm_wait(ahead);
        __syncthreads();
        if (step + ahead < end) {
            const uint32_t free = stage == 0 ? ahead : stage - 1;
            load_weights(step + ahead, free);
            load_x(step + ahead, free);
        }
        cp_async_commit();
        const uint8_t *now = ring + stage * stage_bytes;
        const gemm_step s = {now + warp * weight_bytes, now + x_at, a.n_rows, block_k * 2,
                             warp_k * T::STEP_K / 8,    lane};
        if constexpr (weights_traits<F>::PLAIN)
            gemm_plain_step<NB, MT>(s, sums);
        else
            gemm_coded_step<F, GROUP, NB, MT>(s, sums);
        stage = stage == ahead ? 0 : stage + 1;
    }
    cp_async_wait<0>();
    __syncthreads();
    gemm_finish<NB, MT>(a, sums, reinterpret_cast<float *>(ring));
}
