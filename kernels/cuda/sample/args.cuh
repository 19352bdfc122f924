#pragma once
/* Defines what the files of the device's sampler share: logits as ordered numbers, the state of
 * a row in scratch, and reductions whose result does not depend on the order of the threads. */
#include <float.h>

#include "kernels/cuda/device/common.cuh"
extern "C" {
#include "kernels/cuda/sample/abi.h"
}

constexpr uint32_t SAMPLE_WARP = 32, SAMPLE_ALL = 0xffffffffu;
constexpr uint32_t SAMPLE_SLICES = 16;         /* number of blocks that share a row */
constexpr uint32_t SAMPLE_SLICE_THREADS = 256; /* number of threads of a block that shares a row */
/* number of threads of a block that has a whole row */
constexpr uint32_t SAMPLE_ROW_THREADS = 1024;
constexpr uint32_t SAMPLE_NO_ID = 0xffffffffu;

/* `sample_top` holds the two best of some logits: the larger value first, and the lower id among
 * equals. */
struct sample_top {
    float best, second;
    uint32_t id, second_id;
};
/* `sample_draw` holds the two best scores of a draw. */
struct sample_draw {
    double best, second;
    uint32_t id;
};

/* `sample_row_state` is the state of a row. An id's order (sample_order) is one number; a
 * greater number is better. */
struct sample_row_state {
    /* least order that passes the filters; 0 = all ids whose logit is not -inf pass */
    uint64_t threshold;
};

struct sample_scratch {
    sample_top *raw, *changed; /* `raw` and `changed` have the shape [n_rows][SAMPLE_SLICES] */
    sample_draw *draws;        /* `draws` has the shape [n_rows][SAMPLE_SLICES] */
    sample_row_state *states;  /* `states` has the shape [n_rows] */
    uint32_t *counts;          /* shape [n_rows][vocab_size]: how often each id is an output */
    uint32_t *masks;           /* `masks` has the shape [n_rows][mask_words]: allowed ids */
    float *copies; /* `copies` has the shape [n_rows][vocab_size]: raw logits of changed rows */
    uint32_t mask_words;
};

struct sample_args {
    gpu_sample_params p;
    sample_scratch s;
};

/* Returns a logit as a number. A NaN becomes -inf, and infinity becomes the largest number, so
 * that differences are numbers. */
__device__ inline float sample_number(float logit)
{
    return logit <= FLT_MAX ? logit : logit > FLT_MAX ? FLT_MAX : -INFINITY;
}

__device__ inline bool sample_has_penalties(const gpu_sample_row &r)
{
    return r.repetition != 1.0f || r.frequency != 0.0f || r.presence != 0.0f;
}

__device__ inline bool sample_has_changes(const gpu_sample_row &r)
{
    return r.n_biases > 0 || r.n_allowed > 0 || r.first_mask != SAMPLE_NO_ID ||
           sample_has_penalties(r);
}

__device__ inline bool sample_has_filters(const gpu_sample_row &r, uint32_t vocab_size)
{
    return r.temperature > 0.0f &&
           (r.top_p < 1.0f || r.min_p > 0.0f || (r.top_k > 0 && r.top_k < vocab_size));
}

/* Returns a key that is greater for greater floats. v must not be NaN. */
__device__ inline uint32_t sample_key(float v)
{
    const uint32_t bits = __float_as_uint(v);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ inline uint64_t sample_order(float v, uint32_t id)
{
    return (uint64_t)sample_key(v) << 32 | (SAMPLE_NO_ID - id);
}

__device__ inline sample_top sample_top_none()
{
    return {-INFINITY, -INFINITY, SAMPLE_NO_ID, SAMPLE_NO_ID};
}

__device__ inline bool sample_is_better(float a, uint32_t a_id, float b, uint32_t b_id)
{
    return a > b || (a == b && a_id < b_id);
}

__device__ inline void sample_top_add(sample_top &t, float v, uint32_t id)
{
    if (sample_is_better(v, id, t.best, t.id)) {
        t.second = t.best;
        t.second_id = t.id;
        t.best = v;
        t.id = id;
    } else if (sample_is_better(v, id, t.second, t.second_id)) {
        t.second = v;
        t.second_id = id;
    }
}

__device__ inline void sample_top_merge(sample_top &t, const sample_top &o)
{
    if (o.id != SAMPLE_NO_ID)
        sample_top_add(t, o.best, o.id);
    if (o.second_id != SAMPLE_NO_ID)
        sample_top_add(t, o.second, o.second_id);
}

__device__ inline sample_draw sample_draw_none()
{
    return {-INFINITY, -INFINITY, SAMPLE_NO_ID};
}

__device__ inline void sample_draw_add(sample_draw &d, double score, uint32_t id)
{
    if (score > d.best || (score == d.best && id < d.id)) {
        d.second = d.best;
        d.best = score;
        d.id = id;
    } else if (score > d.second) {
        d.second = score;
    }
}

__device__ inline void sample_draw_merge(sample_draw &d, const sample_draw &o)
{
    if (o.id == SAMPLE_NO_ID)
        return;
    sample_draw_add(d, o.best, o.id);
    d.second = o.second > d.second ? o.second : d.second;
}

/* Returns the two best of a row, merged from its slices. Every thread gets the same result. */
__device__ inline sample_top sample_row_top(const sample_top *slices)
{
    sample_top t = sample_top_none();
    for (uint32_t i = 0; i < SAMPLE_SLICES; i++)
        sample_top_merge(t, slices[i]);
    return t;
}

__device__ inline const sample_top *sample_slices(const sample_args &a, uint32_t i_row)
{
    const bool changed = a.p.wants.changes && sample_has_changes(a.p.rows[i_row]);
    return (changed ? a.s.changed : a.s.raw) + (size_t)i_row * SAMPLE_SLICES;
}

/* `sample_range` is the range of the ids of a slice. Limits are multiples of four, so that a
 * group of four ids, which shares one Philox call, lies in one slice. */
struct sample_range {
    uint32_t begin, end;
};
__device__ inline sample_range sample_slice(uint32_t vocab_size, uint32_t i_slice)
{
    const uint32_t groups = (vocab_size + 3) / 4;
    const uint32_t each = (groups + SAMPLE_SLICES - 1) / SAMPLE_SLICES;
    const uint32_t begin = 4 * each * i_slice, end = begin + 4 * each;
    return {begin < vocab_size ? begin : vocab_size, end < vocab_size ? end : vocab_size};
}

/* The functions below are in filter.cu and logprobs.cu. */
cudaError_t sample_enqueue_filter(const sample_args &a, cudaStream_t stream);
cudaError_t sample_enqueue_logprobs(const sample_args &a, cudaStream_t stream);

template <class A>
cudaError_t sample_launch(void (*kernel)(A), const A &args, dim3 grid, unsigned n_threads,
                          cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(n_threads);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, args);
}
