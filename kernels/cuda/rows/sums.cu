/* Implements operators that make one number, or a few, from each row: sums of squares, the two
 * best logits, sums of exponentials. backend/rows.c calls them through rows/abi.h. A block has
 * one row. Its threads read neighbouring words of 16 bytes in turn, with several loads in
 * flight, and reduce their results at the end. A row of logits is as long as the vocabulary
 * (half a MiB) and is read once. The order of a sum depends only on the row's length. */
#include "kernels/cuda/device/chunks.cuh"
#include "kernels/cuda/device/launch.cuh"

extern "C" {
#include "kernels/cuda/rows/abi.h"
}

namespace
{
constexpr uint32_t THREADS = 1024;
constexpr uint32_t WARP = 32;
constexpr uint32_t N_WARPS = THREADS / WARP;

/* Calls f(i, x[i]) for the elements of a row, loading words of four if the row is aligned. */
template <class F>
__device__ __forceinline__ void each(const float *x, uint32_t dim, bool vector, F f)
{
    const uint32_t n_words = vector ? dim / 4 : 0;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < n_words; i += THREADS) {
        const float4 v = reinterpret_cast<const float4 *>(x)[i];
        f(4 * i, v.x);
        f(4 * i + 1, v.y);
        f(4 * i + 2, v.z);
        f(4 * i + 3, v.w);
    }
    for (uint32_t i = 4 * n_words + threadIdx.x; i < dim; i += THREADS)
        f(i, x[i]);
}

__global__ __launch_bounds__(THREADS) void squares_kernel(const uint16_t *x, uint32_t stride,
                                                          uint32_t dim, bool vector, float *out)
{
    const uint16_t *row = x + (size_t)blockIdx.x * stride;
    float sum = 0.0f;
    dependency_wait();
    dependency_launch();
    for (uint32_t first = threadIdx.x * CHUNK; first < dim; first += THREADS * CHUNK) {
        float v[CHUNK];
        chunk_read(vector, row, first, dim, v);
#pragma unroll
        for (uint32_t i = 0; i < CHUNK; i++)
            sum = fmaf(v[i], v[i], sum);
    }
    sum = threads_sum<THREADS>(sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}

__global__ __launch_bounds__(THREADS) void softcap_kernel(float *x, uint32_t stride, uint32_t dim,
                                                          float cap)
{
    const uint32_t i = blockIdx.y * THREADS + threadIdx.x;
    dependency_wait();
    dependency_launch();
    if (i < dim) {
        float *at = x + (size_t)blockIdx.x * stride + i;
        *at = cap * tanhf(*at / cap);
    }
}

/* ---- the two best ---- */

struct best_two {
    float best, second;
    uint32_t id;
};

/* Merges the two best elements of two sets. An element is better if it is larger, or equal with
 * a lower number. A NaN is never better. */
__device__ __forceinline__ best_two merge(const best_two &a, const best_two &b)
{
    const bool a_first = a.best > b.best || (a.best == b.best && a.id < b.id);
    const best_two &w = a_first ? a : b, &l = a_first ? b : a;
    best_two m = w;
    m.second = fmaxf(w.second, l.best);
    return m;
}

__device__ __forceinline__ best_two warp_merge(best_two v)
{
#pragma unroll
    for (uint32_t step = WARP / 2; step > 0; step /= 2) {
        best_two o;
        o.best = __shfl_xor_sync(0xffffffffu, v.best, step);
        o.second = __shfl_xor_sync(0xffffffffu, v.second, step);
        o.id = __shfl_xor_sync(0xffffffffu, v.id, step);
        v = merge(v, o);
    }
    return v;
}

__global__ __launch_bounds__(THREADS) void top_kernel(const float *x, uint32_t stride, uint32_t dim,
                                                      bool vector, struct logits_top *out)
{
    __shared__ best_two warps[N_WARPS];
    const uint32_t lane = threadIdx.x % WARP;
    const best_two none = {-INFINITY, -INFINITY, UINT32_MAX};
    best_two v = none;
    dependency_wait();
    dependency_launch();
    each(x + (size_t)blockIdx.x * stride, dim, vector, [&](uint32_t i, float value) {
        if (value > v.best) {
            v.second = v.best;
            v.best = value;
            v.id = i;
        } else if (value > v.second) {
            v.second = value;
        }
    });
    v = warp_merge(v);
    if (lane == 0)
        warps[threadIdx.x / WARP] = v;
    __syncthreads();
    if (threadIdx.x >= WARP)
        return;
    v = warp_merge(lane < N_WARPS ? warps[lane] : none);
    if (lane == 0)
        out[blockIdx.x] = {v.id == UINT32_MAX ? 0 : v.id, v.best, v.second};
}

/* ---- a sum of exponentials ---- */

__device__ __forceinline__ double warp_sum(double v)
{
#pragma unroll
    for (uint32_t step = WARP / 2; step > 0; step /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

__global__ __launch_bounds__(THREADS) void sum_exp_kernel(const float *x, uint32_t stride,
                                                          uint32_t dim, bool vector,
                                                          const float *shift, double *out)
{
    __shared__ double warps[N_WARPS];
    const uint32_t lane = threadIdx.x % WARP;
    dependency_wait();
    dependency_launch();
    const float by = shift[blockIdx.x];
    double sum = 0;
    each(x + (size_t)blockIdx.x * stride, dim, vector,
         [&](uint32_t, float value) { /* a NaN counts as -inf */
                                      sum += value == value ? (double)expf(value - by) : 0.0;
         });
    sum = warp_sum(sum);
    if (lane == 0)
        warps[threadIdx.x / WARP] = sum;
    __syncthreads();
    if (threadIdx.x >= WARP)
        return;
    sum = warp_sum(lane < N_WARPS ? warps[lane] : 0.0);
    if (lane == 0)
        out[blockIdx.x] = sum;
}

bool is_aligned(struct view x)
{
    return (uintptr_t)x.data % 16 == 0 && x.stride % 4 == 0;
}

template <class... P, class... A>
enum status run(struct gpu_stream *s, void (*kernel)(P...), dim3 grid, const char *name,
                struct error *err, const A &...args)
{
    if (grid.x == 0 || grid.y == 0)
        return STATUS_OK; /* CUDA refuses an empty grid */
    TRY(gpu_enter(s->device, err));
    return gpu_check(launch_kernel(s, kernel, grid, dim3(THREADS), 0, args...), name, err);
}
} // namespace

enum status cuda_sum_squares(struct gpu_stream *s, struct view x, uint32_t n_rows, uint32_t dim,
                             float *out, struct error *err)
{
    return run(s, squares_kernel, dim3(n_rows), "sum_squares", err,
               static_cast<const uint16_t *>(x.data), x.stride, dim,
               chunk_is_aligned(x.data, x.stride), out);
}

enum status cuda_softcap(struct gpu_stream *s, struct view x, uint32_t n_rows, uint32_t dim,
                         float cap, struct error *err)
{
    const dim3 grid(n_rows, dim / THREADS + (dim % THREADS != 0));
    return run(s, softcap_kernel, grid, "softcap", err, static_cast<float *>(x.data), x.stride, dim,
               cap);
}

enum status cuda_logits_top(struct gpu_stream *s, struct view x, uint32_t n_rows, uint32_t dim,
                            struct logits_top *out, struct error *err)
{
    return run(s, top_kernel, dim3(n_rows), "logits_top", err, static_cast<const float *>(x.data),
               x.stride, dim, is_aligned(x), out);
}

enum status cuda_sum_exp(struct gpu_stream *s, struct view x, uint32_t n_rows, uint32_t dim,
                         const float *shift, double *out, struct error *err)
{
    return run(s, sum_exp_kernel, dim3(n_rows), "sum_exp", err, static_cast<const float *>(x.data),
               x.stride, dim, is_aligned(x), shift, out);
}
