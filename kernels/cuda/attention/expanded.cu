/* Computes attention of tiles of many rows over keys and values that were expanded from latents.
 * A head's nope elements of a key and its value are side by side. The rope elements exist once
 * for all heads. Keys have up to 192 dimensions, values up to 128.
 *
 * Movement of bytes: asynchronous 16-byte copies load units of 32 tokens into one of two buffers
 * while the other buffer is used, as in tile.cuh. No block table is needed, because tokens are
 * stored one after the other. A key's two parts are loaded from two places and stored side by
 * side, each padded with zeros to the kernel's size. The rows of Q are padded in the same way. A
 * thread copies the same piece of every eighth (sixteenth) token, so that its addresses are a
 * constant step apart. */
#include "kernels/cuda/attention/expanded.cuh"
#include "kernels/cuda/attention/result.cuh"
#include "kernels/cuda/attention/steps.cuh"

namespace
{
constexpr uint32_t NOPE = CUDA_LATENT_NOPE, ROPE = CUDA_LATENT_ROPE;

struct expanded_shape : tile_shape<NOPE + ROPE, 4, 1, 2, 32, 2, CUDA_LATENT_V> {
    static constexpr uint32_t V_UNIT_BYTES = BN * LDV * 2;
    static constexpr uint32_t SHARED_BYTES = Q_BYTES + 2 * (UNIT_BYTES + V_UNIT_BYTES);
};
using S = expanded_shape;

struct expanded_shared {
    uint16_t *q, *k, *v; /* k and v have the shapes [2][BN][LD] and [2][BN][LDV] */

    __device__ inline explicit expanded_shared(uint8_t *smem)
    {
        q = reinterpret_cast<uint16_t *>(smem);
        k = reinterpret_cast<uint16_t *>(smem + S::Q_BYTES);
        v = reinterpret_cast<uint16_t *>(smem + S::Q_BYTES + 2 * S::UNIT_BYTES);
    }
};

struct expanded_task : attention_task {
    uint32_t begin_key, end_key; /* range of the keys that exist and that some row sees */
    uint32_t shift;              /* key + shift is the key's index, modulo 2^32 */
};

/* Finds the block's work. Returns false when the block has no work and no result to write. */
__device__ inline bool expanded_task_find(const expanded_args &e, expanded_task *t)
{
    if (!task_find(e.a, S::BM, S::BN, t))
        return false;
    t->begin_key = max(t->first_key, e.key_begin);
    t->end_key = min(t->last_key + 1, e.key_end);
    t->shift = e.first_keys[gridDim.x - 1 - blockIdx.x] - e.key_begin;
    t->i_split = e.first_split + blockIdx.z;
    t->unit = t->end_unit = 0;
    if (t->begin_key >= t->end_key)
        return true;
    const uint32_t unit = t->begin_key / S::BN, n_units = (t->end_key - 1) / S::BN + 1 - unit;
    t->unit = unit + n_units * blockIdx.z / gridDim.z;
    t->end_unit = unit + n_units * (blockIdx.z + 1) / gridDim.z;
    return true;
}

/* Copies `width` elements of each of BN tokens from `key` on into rows of LD elements. Zeros
 * fill the rest of WIDTH and the tokens that do not exist. */
template <uint32_t WIDTH, uint32_t LD>
__device__ inline void part_load(const expanded_task &t, const uint16_t *from, uint32_t stride,
                                 uint32_t width, uint32_t key, uint16_t *to)
{
    constexpr uint32_t CHUNKS = WIDTH / 8, ROWS = S::THREADS / CHUNKS;
    static_assert(S::THREADS % CHUNKS == 0 && S::BN % ROWS == 0, "every thread has as many");
    const uint32_t first = threadIdx.x % CHUNKS * 8;
#pragma unroll
    for (uint32_t j = 0; j < S::BN / ROWS; j++) {
        const uint32_t row = threadIdx.x / CHUNKS + j * ROWS, at = key + row;
        const bool valid = at >= t.begin_key && at < t.end_key && first < width;
        cp_async_16(to + row * LD + first,
                    valid ? from + (size_t)(at + t.shift) * stride + first : from, valid);
    }
}

/* Starts the copies of a unit. */
__device__ inline void unit_load(const expanded_args &e, const expanded_task &t,
                                 const expanded_shared &s, uint32_t unit)
{
    const uint32_t b = unit % 2, key = unit * S::BN;
    const uint16_t *head = e.keys + t.head * e.head_stride;
    uint16_t *k = s.k + b * S::BN * S::LD;
    part_load<NOPE, S::LD>(t, head, e.key_stride, e.nope, key, k);
    part_load<ROPE, S::LD>(t, e.ropes, e.rope, e.rope, key, k + NOPE);
    part_load<S::DV, S::LDV>(t, head + e.nope, e.key_stride, e.value, key,
                             s.v + b * S::BN * S::LDV);
    cp_async_commit();
}

__device__ inline void queries_part(const expanded_args &e, const expanded_task &t, uint32_t m,
                                    uint32_t first, uint32_t part, uint32_t width, uint16_t *to)
{
    uint4 chunk = make_uint4(0, 0, 0, 0);
    if (m < t.n_m && first < width)
        chunk = *reinterpret_cast<const uint4 *>(
            e.a.q + (size_t)(t.first_row + t.m_first + m) * e.a.q_stride + t.head * e.a.head_dim +
            part + first);
    *reinterpret_cast<uint4 *>(to + m * S::LD + first) = chunk;
}

__device__ inline void expanded_begin(const expanded_args &e, const expanded_task &t,
                                      const expanded_shared &s, tile_state<S> &w, uint32_t m_warp)
{
    unit_load(e, t, s, t.unit);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < S::BM * (NOPE / 8); i += S::THREADS)
        queries_part(e, t, i / (NOPE / 8), i % (NOPE / 8) * 8, 0, e.nope, s.q);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < S::BM * (ROPE / 8); i += S::THREADS)
        queries_part(e, t, i / (ROPE / 8), i % (ROPE / 8) * 8, e.nope, e.rope, s.q + NOPE);
#pragma unroll
    for (uint32_t m = 0; m < S::MT; m++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            w.max[m][half] = -INFINITY, w.sum[m][half] = 0.0f;
            w.position[m][half] =
                row_position(t, m_warp + m * 16 + half * 8 + threadIdx.x % 32 / 4);
#pragma unroll
            for (uint32_t d = 0; d < S::DV / 8; d++)
                w.o[m][d][2 * half] = w.o[m][d][2 * half + 1] = 0.0f;
        }
}

__global__ __launch_bounds__(S::THREADS,
                             S::BLOCKS) void attention_expanded_kernel(const expanded_args e)
{
    CUDA_DYNAMIC_SHARED(uint8_t, smem);
    const expanded_shared s(smem);
    expanded_task t;
    tile_state<S> w;
    dependency_launch();
    dependency_wait();
    if (!expanded_task_find(e, &t))
        return;
    if (t.unit == t.end_unit) {
        results_empty(e.a, t);
        return;
    }
    const uint32_t m_warp = threadIdx.x / 32 * 16 * S::MT;
    const float to_exponent = e.a.softcap > 0.0f ? LOG2E : e.a.scale * LOG2E;
    expanded_begin(e, t, s, w, m_warp);
    for (uint32_t unit = t.unit; unit < t.end_unit; unit++) {
        cp_async_wait<0>();
        /* all copies of this unit have arrived, and all warps have read the unit before */
        __syncthreads();
        if (unit + 1 < t.end_unit)
            unit_load(e, t, s, unit + 1);
        float scores[S::MT][S::NT][4];
        unit_scores<S>(w, s.q + m_warp * S::LD, s.k + unit % 2 * S::BN * S::LD, scores);
        unit_mask<S>(e.a, t, w, nullptr, unit * S::BN, scores);
        unit_softmax<S>(w, to_exponent, scores);
        unit_values<S>(w, s.v + unit % 2 * S::BN * S::LDV, nullptr, scores);
    }
#pragma unroll
    for (uint32_t m = 0; m < S::MT; m++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
            w.sum[m][half] = lanes_sum<4>(w.sum[m][half]);
    tile_store<S>(e.a, t, w, m_warp);
}
} // namespace

uint32_t attention_expanded_blocks(uint32_t shared_bytes)
{
    return attention_blocks<S>(shared_bytes);
}

enum status attention_expanded(const expanded_args &e, uint32_t n_splits, struct gpu_stream *s,
                               struct error *err)
{
    TRY(gpu_check(launch_allow_shared(s->device, (const void *)attention_expanded_kernel),
                  "cudaFuncSetAttribute", err));
    const dim3 grid(e.a.n_tiles, e.a.n_heads, n_splits);
    return gpu_check(
        launch_kernel(s, attention_expanded_kernel, grid, dim3(S::THREADS), S::SHARED_BYTES, e),
        "attention_expanded", err);
}
