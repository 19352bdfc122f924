/* Computes attention over a latent (MLA with absorbed weights). There is one KV head of up to
 * 576 dimensions, the first 512 of which are the value. All query heads are packed rows.
 * attention.cu launches this kernel. The result is written to the output or, with several
 * splits, to parts that attention.cu merges.
 *
 * Movement of bytes: a unit of 32 tokens is loaded once and read as keys and as values.
 * Asynchronous 16-byte copies load it into one of two buffers while the other buffer is used. A
 * result of 512 dimensions does not fit into the registers of one warp, so a unit needs three
 * steps with a barrier after each. Scores: each warp has 16 rows, 16 tokens and a part of the
 * dimensions. Softmax: each thread has a few tokens of one row. Values: each warp has all rows
 * and a part of the dimensions.
 * With 16 packed rows (up to 16 heads), two blocks of 4 warps share an SM. With 64 rows
 * (prefill, 128 heads), one block of 8 warps has the SM alone. Rows in shared memory are 16
 * bytes longer than necessary: an odd number of 16-byte words, see tile.cuh. */
#include "kernels/cuda/attention/codes.cuh"
#include "kernels/cuda/attention/launch.cuh"
#include "kernels/cuda/attention/store.cuh"

namespace
{
constexpr uint32_t D = LATENT_DIM, V = LATENT_V_DIM, BN = 32, LD = D + 8;
constexpr uint32_t SCORES_LD = BN + 8, WEIGHTS_LD = BN + 8;

template <uint32_t MT_, uint32_t WARPS_, uint32_t BLOCKS_> struct latent_shape {
    static constexpr uint32_t MT = MT_, WARPS = WARPS_, BLOCKS = BLOCKS_;
    static constexpr uint32_t BM = 16 * MT, THREADS = 32 * WARPS;
    /* PARTS is the number of parts of the dimensions, for the scores. */
    static constexpr uint32_t PARTS = WARPS / (2 * MT);
    static constexpr uint32_t STEPS = D / 16 / PARTS;
    static constexpr uint32_t V_WARP = V / WARPS; /* number of dimensions of a warp's result */
    /* PER_ROW is the number of threads for a row, in the softmax. */
    static constexpr uint32_t PER_ROW = THREADS / BM;
    /* TOKENS is the number of tokens of a thread in the softmax. */
    static constexpr uint32_t TOKENS = BN / PER_ROW;
    static constexpr bool KEEP_Q = PARTS > 1; /* whether Q stays in registers */
    static constexpr uint32_t Q_BYTES = BM * LD * 2, UNIT_BYTES = BN * LD * 2;
    static constexpr uint32_t SCORES_BYTES = PARTS * BM * SCORES_LD * sizeof(float);
    static constexpr uint32_t WEIGHTS_BYTES = BM * WEIGHTS_LD * 2;
    static constexpr uint32_t SHARED_BYTES = Q_BYTES + 2 * UNIT_BYTES + SCORES_BYTES +
                                             WEIGHTS_BYTES + BM * sizeof(float) +
                                             4 * BN * sizeof(token_place);
    static constexpr uint32_t SCALES_BYTES = 0;
    /* CODES_BYTES is the additional shared memory that is needed if the cache holds codes. */
    static constexpr uint32_t CODES_BYTES = 2 * BN * (D + sizeof(float2));
    static_assert(PARTS * 2 * MT == WARPS && STEPS * PARTS * 16 == D && STEPS % 2 == 0, "warps");
    static_assert(PER_ROW <= 32 && TOKENS % 4 == 0, "a row is one warp's");
};
using few_shape = latent_shape<1, 4, 2>;
using many_shape = latent_shape<4, 8, 1>;

template <class S> struct latent_shared {
    uint16_t *q, *k; /* k has the shape [2][BN][LD] */
    float *scores;   /* `scores` has the shape [PARTS][BM][SCORES_LD] */
    uint16_t *weights;
    float *shrink;       /* shape [BM]: factor by which the result so far is multiplied */
    token_place *places; /* `places` has the shape [4][BN] */
    float2 *scales;      /* `scales` has the shape [2][BN] */
    uint8_t *codes;      /* `codes` has the shape [2][BN][D] */

    __device__ inline explicit latent_shared(uint8_t *smem)
    {
        q = reinterpret_cast<uint16_t *>(smem);
        k = reinterpret_cast<uint16_t *>(smem + S::Q_BYTES);
        uint8_t *rest = smem + S::Q_BYTES + 2 * S::UNIT_BYTES;
        scores = reinterpret_cast<float *>(rest);
        weights = reinterpret_cast<uint16_t *>(rest + S::SCORES_BYTES);
        shrink = reinterpret_cast<float *>(rest + S::SCORES_BYTES + S::WEIGHTS_BYTES);
        places = reinterpret_cast<token_place *>(shrink + S::BM);
        codes = smem + S::SHARED_BYTES;
        scales = reinterpret_cast<float2 *>(codes + 2 * BN * D);
    }
};

/* `latent_state` holds a thread's registers. `max`, `sum` and `position` belong to the thread's
 * row in the softmax. */
template <class S> struct latent_state {
    float o[S::MT][S::V_WARP / 8][4];
    float max, sum;
    int32_t position;
    uint32_t q[S::KEEP_Q ? S::STEPS : 1][4];
};

template <class S>
__device__ inline void unit_scores(const latent_state<S> &w, const latent_shared<S> &s,
                                   const uint16_t *unit)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t m = warp % S::MT * 16, n = warp / S::MT % 2 * 16, part = warp / (2 * S::MT);
    const uint16_t *q = s.q + (m + lane % 16) * LD + part * S::STEPS * 16 + lane / 16 * 8;
    const uint16_t *k =
        unit + (n + lane % 8 + lane / 16 * 8) * LD + part * S::STEPS * 16 + lane / 8 % 2 * 8;
    /* odd steps have separate sums, so that the chains of products are shorter */
    float sums[2][2][4] = {};
#pragma unroll
    for (uint32_t d = 0; d < S::STEPS; d++) {
        uint32_t qf[4], kf[4];
        if (S::KEEP_Q) {
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                qf[i] = w.q[S::KEEP_Q ? d : 0][i];
        } else {
            ldmatrix_x4(qf, q + d * 16);
        }
        ldmatrix_x4(kf, k + d * 16);
        const uint32_t b0[2] = {kf[0], kf[1]}, b1[2] = {kf[2], kf[3]};
        mma_bf16_16816(sums[d % 2][0], qf, b0);
        mma_bf16_16816(sums[d % 2][1], qf, b1);
    }
    float *to = s.scores + (part * S::BM + m + lane / 4) * SCORES_LD + n + lane % 4 * 2;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
            *reinterpret_cast<float2 *>(to + half * 8 * SCORES_LD + i * 8) =
                make_float2(sums[0][i][2 * half] + sums[1][i][2 * half],
                            sums[0][i][2 * half + 1] + sums[1][i][2 * half + 1]);
}

template <class S>
__device__ inline void unit_softmax(const attention_args &a, latent_state<S> &w,
                                    const latent_shared<S> &s, uint32_t key)
{
    const uint32_t row = threadIdx.x / S::PER_ROW, first = threadIdx.x % S::PER_ROW * S::TOKENS;
    const float to_exponent = a.softcap > 0.0f ? LOG2E : a.scale * LOG2E;
    float v[S::TOKENS], most = -INFINITY;
#pragma unroll
    for (uint32_t i = 0; i < S::TOKENS; i += 4) {
        const float *from = s.scores + row * SCORES_LD + first + i;
        float4 x = *reinterpret_cast<const float4 *>(from);
#pragma unroll
        for (uint32_t part = 1; part < S::PARTS; part++) {
            const float4 y = *reinterpret_cast<const float4 *>(from + part * S::BM * SCORES_LD);
            x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
        }
        v[i] = x.x, v[i + 1] = x.y, v[i + 2] = x.z, v[i + 3] = x.w;
    }
#pragma unroll
    for (uint32_t i = 0; i < S::TOKENS; i++) {
        if (a.softcap > 0.0f)
            v[i] = softcapped(v[i] * a.scale, a.softcap);
        if (!is_visible(a, (int32_t)(key + first + i), w.position))
            v[i] = -INFINITY;
        most = fmaxf(most, v[i]);
    }
#pragma unroll
    for (uint32_t step = S::PER_ROW / 2; step > 0; step /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    const float max = fmaxf(w.max, most * to_exponent);
    const float shift = max == -INFINITY ? 0.0f : max;
    const float shrink = exp2_fast(w.max - shift);
    w.max = max;
    w.sum *= shrink;
#pragma unroll
    for (uint32_t i = 0; i < S::TOKENS; i++) {
        v[i] = exp2_fast(fmaf(v[i], to_exponent, -shift));
        w.sum += v[i];
    }
#pragma unroll
    for (uint32_t i = 0; i < S::TOKENS; i += 4)
        *reinterpret_cast<uint2 *>(s.weights + row * WEIGHTS_LD + first + i) =
            make_uint2(pack_bf16(v[i], v[i + 1]), pack_bf16(v[i + 2], v[i + 3]));
    if (first == 0)
        s.shrink[row] = shrink;
}

template <class S>
__device__ inline void unit_values(latent_state<S> &w, const latent_shared<S> &s,
                                   const uint16_t *unit)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t p[S::MT][BN / 16][4];
#pragma unroll
    for (uint32_t m = 0; m < S::MT; m++) {
        const uint16_t *from = s.weights + (m * 16 + lane % 16) * WEIGHTS_LD + lane / 16 * 8;
#pragma unroll
        for (uint32_t n = 0; n < BN / 16; n++)
            ldmatrix_x4(p[m][n], from + n * 16);
        const float low = s.shrink[m * 16 + lane / 4], high = s.shrink[m * 16 + 8 + lane / 4];
#pragma unroll
        for (uint32_t d = 0; d < S::V_WARP / 8; d++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                w.o[m][d][i] *= i < 2 ? low : high;
    }
    const uint16_t *v = unit + lane % 16 * LD + warp * S::V_WARP + lane / 16 * 8;
#pragma unroll
    for (uint32_t d = 0; d < S::V_WARP / 16; d++)
#pragma unroll
        for (uint32_t n = 0; n < BN / 16; n++) {
            uint32_t vf[4];
            ldmatrix_x4_trans(vf, v + n * 16 * LD + d * 16);
            const uint32_t b0[2] = {vf[0], vf[1]}, b1[2] = {vf[2], vf[3]};
#pragma unroll
            for (uint32_t m = 0; m < S::MT; m++) {
                mma_bf16_16816(w.o[m][2 * d], p[m][n], b0);
                mma_bf16_16816(w.o[m][2 * d + 1], p[m][n], b1);
            }
        }
}

/* Starts the copies of a unit. */
template <class S>
__device__ inline void unit_load(const attention_args &a, const attention_task &t,
                                 const latent_shared<S> &s, uint32_t unit)
{
    const uint32_t b = unit % 2, key = unit * BN;
    const token_place *places = s.places + unit % 4 * BN;
    if (a.is_staged)
        codes_load<D, BN, S::THREADS>(a, t, a.k, key, places, s.codes + b * BN * D);
    else
        tokens_load<D, BN, S::THREADS>(a, t, a.k, a.k_scales, key, places, s.k + b * BN * LD);
    cp_async_commit();
}

template <class S>
__device__ inline void unit_convert(const attention_args &a, const latent_shared<S> &s,
                                    uint32_t unit)
{
    const uint32_t b = unit % 2;
    codes_convert<D, BN, S::THREADS>(a, s.codes + b * BN * D, s.scales + b * BN, s.k + b * BN * LD);
}

/* `token_ahead` holds the place and scales of a token that is needed later: loaded early, stored
 * late. */
struct token_ahead {
    token_place place;
    float2 scales;
};

/* Loads the place of a token of `unit`, and the scales of a token of the previous unit, whose
 * places are already known. */
template <class S>
__device__ inline token_ahead ahead_fetch(const attention_args &a, const attention_task &t,
                                          const latent_shared<S> &s, uint32_t unit)
{
    token_ahead v = {{0, 0}, make_float2(0.0f, 0.0f)};
    if (threadIdx.x >= BN)
        return v;
    v.place = token_find(a, t, unit * BN + threadIdx.x);
    if (a.is_staged)
        v.scales = scales_fetch(a, t, (unit - 1) * BN + threadIdx.x,
                                s.places[(unit - 1) % 4 * BN + threadIdx.x]);
    return v;
}

template <class S>
__device__ inline void ahead_store(const attention_args &a, const latent_shared<S> &s,
                                   uint32_t unit, const token_ahead &v)
{
    if (threadIdx.x >= BN)
        return;
    s.places[unit % 4 * BN + threadIdx.x] = v.place;
    if (a.is_staged)
        s.scales[(unit - 1) % 2 * BN + threadIdx.x] = v.scales;
}

/* Starts the first unit. With codes it starts the second unit too, and converts the first to
 * bfloat16. */
template <class S>
__device__ inline void latent_begin(const attention_args &a, const attention_task &t,
                                    const latent_shared<S> &s, latent_state<S> &w)
{
    queries_load<D, S::BM, S::THREADS>(a, t, s.q);
    if (threadIdx.x < BN)
        s.places[t.unit % 4 * BN + threadIdx.x] = token_find(a, t, t.unit * BN + threadIdx.x);
    for (uint32_t unit = t.unit + 1; unit < t.unit + (a.is_staged ? 3 : 2); unit++)
        ahead_store<S>(a, s, unit, ahead_fetch<S>(a, t, s, unit));
    __syncthreads();
    unit_load<S>(a, t, s, t.unit);
    if (a.is_staged)
        unit_load<S>(a, t, s, t.unit + 1);
    w.max = -INFINITY, w.sum = 0.0f;
    w.position = row_position(t, threadIdx.x / S::PER_ROW);
#pragma unroll
    for (uint32_t m = 0; m < S::MT; m++)
#pragma unroll
        for (uint32_t d = 0; d < S::V_WARP / 8; d++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                w.o[m][d][i] = 0.0f;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint16_t *q = s.q + (warp % S::MT * 16 + lane % 16) * LD +
                        warp / (2 * S::MT) * S::STEPS * 16 + lane / 16 * 8;
    if (S::KEEP_Q)
#pragma unroll
        for (uint32_t d = 0; d < (S::KEEP_Q ? S::STEPS : 1); d++)
            ldmatrix_x4(w.q[d], q + d * 16);
    if (a.is_staged) {
        cp_async_wait<1>();
        __syncthreads();
        unit_convert<S>(a, s, t.unit);
    }
}

template <class S>
__device__ inline void latent_store(const attention_args &a, const attention_task &t,
                                    const latent_state<S> &w, float *sums)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float sum = lanes_sum<S::PER_ROW>(w.sum);
    if (threadIdx.x % S::PER_ROW == 0) {
        sums[threadIdx.x / S::PER_ROW * 2] = w.max;
        sums[threadIdx.x / S::PER_ROW * 2 + 1] = sum;
    }
    __syncthreads();
#pragma unroll
    for (uint32_t m = 0; m < S::MT; m++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t row = m * 16 + half * 8 + lane / 4;
            if (row >= t.n_m)
                continue;
            const row_result r = result_begin(a, t, row, sums[row * 2], sums[row * 2 + 1],
                                              warp == 0 && lane % 4 == 0);
#pragma unroll
            for (uint32_t d = 0; d < S::V_WARP / 8; d++)
                result_store(a, r, warp * S::V_WARP + d * 8 + lane % 4 * 2, w.o[m][d][2 * half],
                             w.o[m][d][2 * half + 1]);
        }
}

template <class S>
__global__ __launch_bounds__(S::THREADS,
                             S::BLOCKS) void attention_latent_kernel(const attention_args a)
{
    CUDA_DYNAMIC_SHARED(uint8_t, smem);
    const latent_shared<S> s(smem);
    attention_task t;
    latent_state<S> w;
    dependency_launch();
    dependency_wait();
    if (!task_find(a, S::BM, BN, &t))
        return;
    if (t.unit == t.end_unit) {
        results_empty(a, t);
        return;
    }
    latent_begin<S>(a, t, s, w);
    for (uint32_t unit = t.unit; unit < t.end_unit; unit++) {
        const uint32_t ahead = unit + (a.is_staged ? 2 : 1);
        cp_async_wait<0>();
        /* This unit has arrived (with codes: the next unit has). All warps have read the unit
         * before and its weights. */
        __syncthreads();
        if (ahead < t.end_unit)
            unit_load<S>(a, t, s, ahead);
        const token_ahead next = ahead_fetch<S>(a, t, s, ahead + 1);
        if (a.is_staged && unit + 1 < t.end_unit)
            unit_convert<S>(a, s, unit + 1);
        unit_scores<S>(w, s, s.k + unit % 2 * BN * LD);
        __syncthreads();
        unit_softmax<S>(a, w, s, unit * BN);
        ahead_store<S>(a, s, ahead + 1, next);
        __syncthreads();
        unit_values<S>(w, s, s.k + unit % 2 * BN * LD);
    }
    latent_store<S>(a, t, w, s.scores);
}
} // namespace

uint32_t attention_latent_rows(uint32_t group, bool many, uint32_t shared_bytes)
{
    return (many || group > few_shape::BM) && many_shape::SHARED_BYTES <= shared_bytes
               ? many_shape::BM
               : few_shape::BM;
}

uint32_t attention_latent_blocks(uint32_t rows, uint32_t shared_bytes)
{
    return rows == few_shape::BM ? attention_blocks<few_shape>(shared_bytes)
                                 : attention_blocks<many_shape>(shared_bytes);
}

enum status attention_latent(const attention_args &a, uint32_t rows, uint32_t n_kv_heads,
                             struct gpu_stream *s, struct error *err)
{
    return rows == few_shape::BM ? attention_enqueue<few_shape>(attention_latent_kernel<few_shape>,
                                                                a, n_kv_heads, s, err)
                                 : attention_enqueue<many_shape>(
                                       attention_latent_kernel<many_shape>, a, n_kv_heads, s, err);
}
