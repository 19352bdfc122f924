/* Implements sampling on the device (abi.h); backend/sampler.c calls this file. SAMPLE_SLICES
 * blocks share a row, so that a step does not wait for one row of 128,000 logits. Only a later
 * kernel adds up results of blocks, in order.
 * Launches: first the best two of each slice. With changes (biases, masks, penalties), then the
 * changes, and the best two again. With filters, then the least order that passes. With a
 * temperature, then each slice's best two scores. Last, one warp for each row stores the id for
 * the next step. A greedy row reads its logits once.
 *
 * Draws are those of worker/sampling/draw.h: Gumbel noise by Philox, a function of (seed,
 * prompt, choice; position, id). Only few scores are computed, in double. An id is skipped by a
 * float comparison if it would need more noise than its random bits allow, with a margin for
 * float rounding. */
#include "kernels/cuda/sample/args.cuh"

namespace
{
__device__ inline sample_top block_top(sample_top t)
{
    __shared__ sample_top tops[SAMPLE_SLICE_THREADS / SAMPLE_WARP];
    for (uint32_t step = SAMPLE_WARP / 2; step > 0; step /= 2) {
        sample_top o;
        o.best = __shfl_xor_sync(SAMPLE_ALL, t.best, step);
        o.second = __shfl_xor_sync(SAMPLE_ALL, t.second, step);
        o.id = __shfl_xor_sync(SAMPLE_ALL, t.id, step);
        o.second_id = __shfl_xor_sync(SAMPLE_ALL, t.second_id, step);
        sample_top_merge(t, o);
    }
    if (threadIdx.x % SAMPLE_WARP == 0)
        tops[threadIdx.x / SAMPLE_WARP] = t;
    __syncthreads();
    for (uint32_t i = 0; i < SAMPLE_SLICE_THREADS / SAMPLE_WARP; i++)
        if (i != threadIdx.x / SAMPLE_WARP)
            sample_top_merge(t, tops[i]);
    return t;
}

/* Finds the best two of all rows' raw logits. With `again`, it finds the best two of the rows
 * that were changed. */
__global__ __launch_bounds__(SAMPLE_SLICE_THREADS) void top_kernel(const sample_args a, bool again)
{
    const uint32_t i_row = blockIdx.y;
    const gpu_sample_row &row = a.p.rows[i_row];
    if (again && !sample_has_changes(row))
        return;
    const float *logits = a.p.logits + (size_t)row.logits_row * a.p.stride;
    const sample_range r = sample_slice(a.p.vocab_size, blockIdx.x);
    sample_top t = sample_top_none();
#pragma unroll 4
    for (uint32_t i = r.begin + threadIdx.x; i < r.end; i += SAMPLE_SLICE_THREADS)
        sample_top_add(t, sample_number(logits[i]), i);
    t = block_top(t);
    if (threadIdx.x == 0)
        (again ? a.s.changed : a.s.raw)[(size_t)i_row * SAMPLE_SLICES + blockIdx.x] = t;
}

/* ---- changes, a block for each row ---- */

__device__ void keep_copy(const sample_args &a, uint32_t i_row, const float *logits)
{
    float *copy = a.s.copies + (size_t)i_row * a.p.vocab_size;
    for (uint32_t i = threadIdx.x; i < a.p.vocab_size; i += SAMPLE_ROW_THREADS)
        copy[i] = logits[i];
}

__device__ void apply_allowed(const sample_args &a, uint32_t i_row, const gpu_sample_row &row,
                              float *logits)
{
    uint32_t *mask = a.s.masks + (size_t)i_row * a.s.mask_words;
    for (uint32_t i = threadIdx.x; i < a.s.mask_words; i += SAMPLE_ROW_THREADS)
        mask[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < row.n_allowed; i += SAMPLE_ROW_THREADS) {
        const uint32_t id = a.p.allowed[row.first_allowed + i];
        if (id < a.p.vocab_size)
            atomicOr(&mask[id / 32], 1u << id % 32);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.p.vocab_size; i += SAMPLE_ROW_THREADS)
        if (!(mask[i / 32] >> i % 32 & 1))
            logits[i] = -INFINITY;
    __syncthreads();
}

__device__ void apply_mask(const sample_args &a, const gpu_sample_row &row, float *logits)
{
    const uint32_t *mask = a.p.mask + row.first_mask;
    for (uint32_t i = threadIdx.x; i < a.p.vocab_size; i += SAMPLE_ROW_THREADS)
        if (!(mask[i / 32] >> i % 32 & 1))
            logits[i] = -INFINITY;
    __syncthreads();
}

__device__ void apply_biases(const sample_args &a, const gpu_sample_row &row, float *logits)
{
    for (uint32_t i = threadIdx.x; i < row.n_biases; i += SAMPLE_ROW_THREADS) {
        const gpu_bias b = a.p.biases[row.first_bias + i];
        if (b.id < a.p.vocab_size)
            logits[b.id] = sample_number(logits[b.id]) + b.value;
    }
    __syncthreads();
}

/* SEEN marks an id that has been penalised. Outputs are counted first. Then the thread that sets
 * an id's mark penalises it, so each id is penalised once. */
constexpr uint32_t SEEN = 1u << 31;

__device__ inline uint32_t history_at(const sample_args &a, const gpu_sample_row &row, uint32_t i)
{
    return i < row.n_history ? a.p.history[row.first_history + i] : a.p.last[row.slot];
}

__device__ void apply_penalties(const sample_args &a, uint32_t i_row, const gpu_sample_row &row,
                                float *logits)
{
    uint32_t *counts = a.s.counts + (size_t)i_row * a.p.vocab_size;
    const uint32_t n = row.n_history + (row.last_is_output ? 1 : 0);
    /* The prompt matters only for the repetition penalty. */
    const uint32_t first = row.repetition == 1.0f ? min(row.n_prompt, n) : 0;
    for (uint32_t i = first + threadIdx.x; i < n; i += SAMPLE_ROW_THREADS) {
        const uint32_t id = history_at(a, row, i);
        if (id < a.p.vocab_size)
            counts[id] = 0;
    }
    __syncthreads();
    for (uint32_t i = max(first, row.n_prompt) + threadIdx.x; i < n; i += SAMPLE_ROW_THREADS) {
        const uint32_t id = history_at(a, row, i);
        if (id < a.p.vocab_size)
            atomicAdd(&counts[id], 1u);
    }
    __syncthreads();
    for (uint32_t i = first + threadIdx.x; i < n; i += SAMPLE_ROW_THREADS) {
        const uint32_t id = history_at(a, row, i);
        const uint32_t count = id < a.p.vocab_size ? atomicOr(&counts[id], SEEN) : SEEN;
        if (count & SEEN)
            continue;
        float v = sample_number(logits[id]);
        v = v > 0.0f ? v / row.repetition : v * row.repetition;
        if (count > 0)
            v -= row.frequency * (float)count + row.presence;
        logits[id] = v;
    }
    __syncthreads();
}

__global__ __launch_bounds__(SAMPLE_ROW_THREADS) void change_kernel(const sample_args a)
{
    const uint32_t i_row = blockIdx.x;
    const gpu_sample_row &row = a.p.rows[i_row];
    if (!sample_has_changes(row))
        return;
    float *logits = a.p.logits + (size_t)row.logits_row * a.p.stride;
    if (row.n_logprobs >= 0)
        keep_copy(a, i_row, logits);
    __syncthreads();
    if (row.n_allowed > 0)
        apply_allowed(a, i_row, row, logits);
    if (row.first_mask != SAMPLE_NO_ID)
        apply_mask(a, row, logits);
    if (row.n_biases > 0)
        apply_biases(a, row, logits);
    if (sample_has_penalties(row))
        apply_penalties(a, i_row, row, logits);
}

/* ---- draws ---- */

/* Computes Philox4x32-10 (Salmon et al. 2011), as in worker/sampling/draw.c. */
__device__ inline uint4 philox(const gpu_sample_row &row, uint32_t i_group)
{
    uint32_t k0 = (uint32_t)row.seed, k1 = (uint32_t)(row.seed >> 32);
    uint32_t c0 = i_group, c1 = row.n_ids, c2 = row.i_prompt, c3 = row.i_choice;
#pragma unroll
    for (int i = 0; i < 10; i++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

__device__ inline uint32_t lane_of(uint4 v, uint32_t i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ inline double score_of(float logit, double temperature, uint32_t bits)
{
    const double u = ((double)bits + 0.5) * 0x1p-32;
    return (double)logit / temperature - log(-log(u));
}

constexpr float MAX_NOISE = 23.0f; /* the largest noise from 32 bits is 22.87 */

/* Returns whether an id's noise may exceed t, since 1 - u <= -log(u) < e^-t. Returns true if t
 * is not a number, because scores are beyond float's range. */
__device__ inline bool may_exceed(uint32_t bits, float t)
{
    return !(t > 0.0f) || (float)(0xffffffffu - bits) <= __expf(-t) * 4294967296.0f * 1.001f + 2.0f;
}

/* `draw_bounds` holds the bounds for a row's slices, which search for ids whose score may be one
 * of the two best. The scores of the two largest logits are known beforehand. */
struct draw_bounds {
    /* 1 / temperature; least score that matters; margin for float rounding */
    float inverse, floor, slack;
};
__device__ inline draw_bounds bounds_of(const gpu_sample_row &row, const sample_top &t)
{
    const double temperature = row.temperature;
    const double a = score_of(t.best, temperature, lane_of(philox(row, t.id / 4), t.id % 4));
    const double b =
        score_of(t.second, temperature, lane_of(philox(row, t.second_id / 4), t.second_id % 4));
    const double floor = a < b ? a : b;
    const float most = fabsf(t.best / row.temperature) + fabsf((float)floor);
    return {1.0f / row.temperature, (float)floor, 1e-3f + 1e-6f * most};
}

__device__ inline sample_draw block_draw(sample_draw d)
{
    __shared__ sample_draw draws[SAMPLE_SLICE_THREADS];
    draws[threadIdx.x] = d;
    __syncthreads();
    for (uint32_t n = SAMPLE_SLICE_THREADS / 2; n > 0; n /= 2) {
        if (threadIdx.x < n) {
            sample_draw_merge(d, draws[threadIdx.x + n]);
            draws[threadIdx.x] = d;
        }
        __syncthreads();
    }
    return d;
}

/* Computes a slice's draw. One Philox call serves a group of four ids. */
__device__ sample_draw draw_slice(const sample_args &a, uint32_t i_row, const gpu_sample_row &row,
                                  const sample_top &top)
{
    const uint64_t threshold = a.p.wants.filters && sample_has_filters(row, a.p.vocab_size)
                                   ? a.s.states[i_row].threshold
                                   : 0;
    const float *logits = a.p.logits + (size_t)row.logits_row * a.p.stride;
    const sample_range r = sample_slice(a.p.vocab_size, blockIdx.x);
    const draw_bounds b = bounds_of(row, top);
    sample_draw d = sample_draw_none();
    for (uint32_t i = r.begin + 4 * threadIdx.x; i < r.end; i += 4 * SAMPLE_SLICE_THREADS) {
        float v[4], best = -INFINITY;
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            v[j] = i + j < r.end ? sample_number(logits[i + j]) : -INFINITY;
            if (sample_order(v[j], i + j) < threshold)
                v[j] = -INFINITY;
            best = fmaxf(best, v[j]);
        }
        if (best == -INFINITY || best * b.inverse + MAX_NOISE + b.slack < b.floor)
            continue;
        const uint4 bits = philox(row, i / 4);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            if (v[j] != -INFINITY &&
                may_exceed(lane_of(bits, j), b.floor - v[j] * b.inverse - b.slack))
                sample_draw_add(d, score_of(v[j], row.temperature, lane_of(bits, j)), i + j);
    }
    return d;
}

/* Returns false when at most one id is left, so that no draw is needed. */
__device__ inline bool has_rival(const sample_args &a, uint32_t i_row, const gpu_sample_row &row,
                                 const sample_top &t)
{
    if (t.second == -INFINITY)
        return false;
    return !a.p.wants.filters || !sample_has_filters(row, a.p.vocab_size) ||
           sample_order(t.second, t.second_id) >= a.s.states[i_row].threshold;
}

__global__ __launch_bounds__(SAMPLE_SLICE_THREADS) void draw_kernel(const sample_args a)
{
    const uint32_t i_row = blockIdx.y;
    const gpu_sample_row &row = a.p.rows[i_row];
    const sample_top top = sample_row_top(sample_slices(a, i_row));
    if (!(row.temperature > 0.0f) || !has_rival(a, i_row, row, top))
        return;
    const sample_draw d = block_draw(draw_slice(a, i_row, row, top));
    if (threadIdx.x == 0)
        a.s.draws[(size_t)i_row * SAMPLE_SLICES + blockIdx.x] = d;
}

/* ---- results ---- */

__device__ inline float gap_of(double best, double second)
{
    const float gap = second > -INFINITY ? (float)(best - second) : INFINITY;
    return gap > FLT_MIN ? gap : FLT_MIN;
}

__global__ void finish_kernel(const sample_args a)
{
    const uint32_t i_row = blockIdx.x * blockDim.x + threadIdx.x;
    if (i_row >= a.p.n_rows)
        return;
    const gpu_sample_row &row = a.p.rows[i_row];
    const sample_top raw = sample_row_top(a.s.raw + (size_t)i_row * SAMPLE_SLICES);
    const sample_top top = sample_row_top(sample_slices(a, i_row));
    uint32_t id = top.id;
    float gap = gap_of(top.best, top.second);
    if (top.best == -INFINITY) { /* no id may be sampled */
        id = raw.id;
        gap = INFINITY;
    } else if (row.temperature > 0.0f) {
        if (has_rival(a, i_row, row, top)) {
            sample_draw d = sample_draw_none();
            for (uint32_t i = 0; i < SAMPLE_SLICES; i++)
                sample_draw_merge(d, a.s.draws[(size_t)i_row * SAMPLE_SLICES + i]);
            id = d.id;
            gap = gap_of(d.best, d.second);
        } else {
            gap = INFINITY;
        }
    }
    gpu_sampled &out = a.p.out[i_row];
    out.id = id;
    out.gap = gap;
    out.best = raw.best;
    out.rank = 0;
    out.n_top = 0;
    out.logprob = 0.0f;
    if (row.slot != SAMPLE_NO_ID)
        a.p.last[row.slot] = id;
}

__global__ void take_kernel(uint32_t *ids, const uint32_t *slots, const uint32_t *last,
                            uint32_t n_rows)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n_rows && slots[i] != SAMPLE_NO_ID)
        ids[i] = last[slots[i]];
}

constexpr unsigned FINISH_THREADS = 32, TAKE_THREADS = 128;

/* ---- host ---- */

struct carver {
    uint8_t *base;
    uint64_t used;
};
template <class T> T *carve(carver &c, uint64_t n)
{
    T *at = reinterpret_cast<T *>(c.base + c.used);
    c.used += (n * sizeof(T) + 15) / 16 * 16;
    return at;
}

uint64_t lay_out(uint8_t *base, uint64_t n_rows, uint64_t vocab_size, sample_scratch *s)
{
    carver c = {base, 0};
    s->mask_words = (uint32_t)((vocab_size + 31) / 32);
    s->raw = carve<sample_top>(c, n_rows * SAMPLE_SLICES);
    s->changed = carve<sample_top>(c, n_rows * SAMPLE_SLICES);
    s->draws = carve<sample_draw>(c, n_rows * SAMPLE_SLICES);
    s->states = carve<sample_row_state>(c, n_rows);
    s->masks = carve<uint32_t>(c, n_rows * s->mask_words);
    s->counts = carve<uint32_t>(c, n_rows * vocab_size);
    s->copies = carve<float>(c, n_rows * vocab_size);
    return c.used;
}

cudaError_t enqueue(const sample_args &a, cudaStream_t stream)
{
    const dim3 slices(SAMPLE_SLICES, a.p.n_rows), rows(a.p.n_rows);
    cudaLaunchConfig_t config = {};
    config.gridDim = slices;
    config.blockDim = dim3(SAMPLE_SLICE_THREADS);
    config.stream = stream;
    cudaError_t e = cudaLaunchKernelEx(&config, top_kernel, a, false);
    if (e == cudaSuccess && a.p.wants.changes) {
        e = sample_launch(change_kernel, a, rows, SAMPLE_ROW_THREADS, stream);
        if (e == cudaSuccess)
            e = cudaLaunchKernelEx(&config, top_kernel, a, true);
    }
    if (e == cudaSuccess && a.p.wants.filters)
        e = sample_enqueue_filter(a, stream);
    if (e == cudaSuccess && a.p.wants.draws)
        e = sample_launch(draw_kernel, a, slices, SAMPLE_SLICE_THREADS, stream);
    if (e == cudaSuccess)
        e = sample_launch(finish_kernel, a,
                          dim3((a.p.n_rows + FINISH_THREADS - 1) / FINISH_THREADS), FINISH_THREADS,
                          stream);
    if (e == cudaSuccess && a.p.wants.logprobs)
        e = sample_enqueue_logprobs(a, stream);
    return e;
}
} // namespace

uint64_t cuda_sample_scratch_bytes(uint32_t n_rows, uint32_t vocab_size)
{
    sample_scratch s;
    return lay_out(nullptr, n_rows, vocab_size, &s);
}

enum status cuda_sample(struct gpu_stream *s, const struct gpu_sample_params *p, struct error *err)
{
    if (p->n_rows == 0)
        return STATUS_OK;
    if (p->n_rows > GPU_SAMPLE_MAX_ROWS || p->vocab_size == 0 || p->stride < p->vocab_size ||
        p->scratch_bytes < cuda_sample_scratch_bytes(p->n_rows, p->vocab_size))
        return error_set(
            err, STATUS_INVALID,
            "cannot sample %u rows of %u logits (stride %u) with %llu bytes of scratch memory",
            p->n_rows, p->vocab_size, p->stride, (unsigned long long)p->scratch_bytes);
    TRY(gpu_enter(s->device, err));
    sample_args a;
    a.p = *p;
    (void)lay_out(static_cast<uint8_t *>(p->scratch), p->n_rows, p->vocab_size, &a.s);
    return gpu_check(enqueue(a, s->native), "sampling", err);
}

enum status cuda_take_last(struct gpu_stream *s, uint32_t *ids, const uint32_t *slots,
                           const uint32_t *last, uint32_t n_rows, struct error *err)
{
    if (n_rows == 0)
        return STATUS_OK;
    TRY(gpu_enter(s->device, err));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((n_rows + TAKE_THREADS - 1) / TAKE_THREADS);
    config.blockDim = dim3(TAKE_THREADS);
    config.stream = s->native;
    return gpu_check(cudaLaunchKernelEx(&config, take_kernel, ids, slots, last, n_rows),
                     "taking ids", err);
}
