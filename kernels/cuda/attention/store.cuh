#pragma once
/* Stores the results of a block: rows of the output or, with several splits, parts that
 * attention.cu's second kernel merges. */
#include "kernels/cuda/attention/args.cuh"

/* `row_result` is the destination of packed row m's result, and the factor by which the result
 * is multiplied. */
struct row_result {
    uint16_t *out; /* set with one split; otherwise `part` is set */
    float *part;
    float factor;
};

/* Returns the factor of a result. `max` is an exponent of two. A sink counts as one more score. */
__device__ inline float result_factor(const float *sinks, uint32_t head, float max, float sum)
{
    if (sum == 0.0f)
        return 0.0f; /* the row is padding: no key was seen */
    if (!sinks)
        return 1.0f / sum;
    const float sink = sinks[head] * LOG2E, both = fmaxf(max, sink);
    const float old = exp2f(max - both);
    return old / fmaf(sum, old, exp2f(sink - both));
}

/* Returns the destination and the factor of packed row m. is_first is true for one of the
 * threads that share this row; with several splits, that thread writes the row's maximum and
 * sum. */
__device__ inline row_result result_begin(const attention_args &a, const attention_task &t,
                                          uint32_t m, float max, float sum, bool is_first)
{
    const uint32_t packed = t.m_first + m, row = packed / t.n_heads;
    const uint32_t head = t.head + packed % t.n_heads;
    row_result r = {};
    if (a.n_splits == 1) {
        r.out = a.out + (size_t)(t.first_row + row) * a.out_stride + (size_t)head * a.v_dim;
        r.factor = result_factor(a.sinks, head, max, sum);
        return r;
    }
    const size_t i = ((size_t)(t.slot + row) * a.n_heads + head) * a.n_splits + t.i_split;
    r.factor = 1.0f;
    r.part = a.parts + i * a.v_dim;
    if (is_first)
        a.sums[i] = make_float2(max, sum);
    if (sum == 0.0f)
        r.part = nullptr; /* the merge ignores an empty part */
    return r;
}

/* Stores elements i and i + 1 if i < v_dim; v_dim is even. */
__device__ inline void pair_store(uint16_t *out, uint32_t i, uint32_t v_dim, float x, float y)
{
    if (i >= v_dim)
        return;
    const uint32_t pair = pack_bf16(x, y);
    if ((reinterpret_cast<uintptr_t>(out + i) & 3u) == 0) {
        *reinterpret_cast<uint32_t *>(out + i) = pair;
    } else {
        out[i] = (uint16_t)pair;
        out[i + 1] = (uint16_t)(pair >> 16);
    }
}

__device__ inline void result_store(const attention_args &a, const row_result &r, uint32_t i,
                                    float x, float y)
{
    if (r.out)
        pair_store(r.out, i, a.v_dim, x * r.factor, y * r.factor);
    else if (r.part && i < a.v_dim)
        *reinterpret_cast<float2 *>(r.part + i) = make_float2(x, y);
}

/* Writes the result of a block that saw no key: an empty split, or padding. */
__device__ inline void results_empty(const attention_args &a, const attention_task &t)
{
    const uint32_t n_pairs = a.n_splits == 1 ? a.v_dim / 2 : 1;
    for (uint32_t i = threadIdx.x; i < t.n_m * n_pairs; i += blockDim.x) {
        const row_result r = result_begin(a, t, i / n_pairs, -INFINITY, 0.0f, true);
        result_store(a, r, i % n_pairs * 2, 0.0f, 0.0f);
    }
}
