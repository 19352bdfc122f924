/* Chooses a row's experts. backend/moe.c calls cuda_route; ids and shares are written to device
 * memory, where moe.cu reads them. A warp has one row, with its scores in shared memory. The
 * logits are therefore read once, and neighbouring lanes read neighbouring words.
 * The choice equals the CPU's (kernels/cpu/backend/moe.c) for the same logits. Exponentials are
 * computed in double and rounded once, so that scores which tie on the CPU tie here. Among equal
 * scores, the lower number is chosen, and a NaN is never chosen twice. The cost of a launch is
 * its latency: n_chosen maxima over the warp. */
#include "kernels/cuda/device/launch.cuh"

extern "C" {
#include "kernels/cuda/moe/abi.h"
}

#include <cuda_bf16.h>
#include <float.h>
#include <math.h>

namespace
{
constexpr uint32_t WARP = 32, MAX_WARPS = 4;
constexpr uint32_t ALL_LANES = 0xffffffffu;
/* MAX_SHARED_BYTES is the shared memory that a block has without a special request. */
constexpr uint32_t MAX_SHARED_BYTES = 48u << 10;

struct route_args {
    struct route_params p;
    bool logits_are_float;
    uint32_t n_shared; /* number of floats of shared memory for a warp */
};

__device__ inline float logit(const route_args &a, uint32_t row, uint32_t i)
{
    const size_t at = (size_t)row * a.p.logits.stride + i;
    if (a.logits_are_float)
        return static_cast<const float *>(a.p.logits.data)[at];
    return __uint_as_float((uint32_t) static_cast<const uint16_t *>(a.p.logits.data)[at] << 16);
}

__device__ inline float exp_rounded(float v)
{
    return (float)exp((double)v);
}

__device__ inline float warp_max(float v)
{
#pragma unroll
    for (uint32_t step = WARP / 2; step > 0; step /= 2)
        /* fmaxf returns the other operand when one is NaN */
        v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, step));
    return v;
}

__device__ inline double warp_sum(double v)
{
#pragma unroll
    for (uint32_t step = WARP / 2; step > 0; step /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, step);
    return v;
}

/* Replaces x[0 .. n) by its softmax. A NaN in x makes every result NaN, as on the CPU. */
__device__ inline void warp_softmax(float *x, uint32_t n, uint32_t lane)
{
    float max = -INFINITY;
    double sum = 0;
    for (uint32_t i = lane; i < n; i += WARP)
        max = fmaxf(max, x[i]);
    max = warp_max(max);
    for (uint32_t i = lane; i < n; i += WARP) {
        x[i] = exp_rounded(x[i] - max);
        sum += (double)x[i];
    }
    sum = warp_sum(sum);
    for (uint32_t i = lane; i < n; i += WARP)
        x[i] = (float)((double)x[i] / sum);
    __syncwarp();
}

/* Returns the index of the largest element, the lowest among equals. A NaN counts only at index
 * 0: the search begins there, and no comparison with a NaN is true. */
__device__ inline uint32_t warp_best(const float *x, uint32_t n, uint32_t lane)
{
    float best = -INFINITY;
    uint32_t at = 0;
    if (isnan(x[0]))
        return 0;
    for (uint32_t i = lane; i < n; i += WARP)
        if (x[i] > best) {
            best = x[i];
            at = i;
        }
#pragma unroll
    for (uint32_t step = WARP / 2; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, best, step);
        const uint32_t other_at = __shfl_xor_sync(ALL_LANES, at, step);
        if (other > best || (other == best && other_at < at)) {
            best = other;
            at = other_at;
        }
    }
    return at;
}

/* Returns the best score of a group, or the sum of its two best scores. Groups of neighbouring
 * lanes may be in the same bank, so each lane begins at another element. */
__device__ inline float group_score(const float *x, uint32_t n, uint32_t begin, bool by_two)
{
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        const float v = x[(begin + i) % n];
        if (v > best) {
            second = best;
            best = v;
        } else if (v > second) {
            second = v;
        }
    }
    return by_two && n > 1 ? best + second : best;
}

/* Sets the ranked scores of experts outside the best groups to zero. */
__device__ inline void leave_groups_out(const struct route_params &p, float *ranked, float *groups,
                                        uint32_t lane)
{
    const uint32_t n = p.n_experts / p.n_groups;
    uint32_t mine = 0; /* bit i: group lane + 32 i is chosen */
    for (uint32_t g = lane; g < p.n_groups; g += WARP)
        groups[g] = group_score(ranked + g * n, n, lane, p.groups_by_two);
    __syncwarp();
    for (uint32_t k = 0; k < p.n_groups_chosen; k++) {
        const uint32_t g = warp_best(groups, p.n_groups, lane);
        __syncwarp();
        if (g % WARP == lane) {
            mine |= 1u << g / WARP;
            groups[g] = -INFINITY;
        }
        __syncwarp();
    }
    for (uint32_t g = lane; g < p.n_groups; g += WARP)
        groups[g] = mine >> g / WARP & 1 ? 1.0f : 0.0f;
    __syncwarp();
    for (uint32_t i = lane; i < p.n_experts; i += WARP)
        if (groups[i / n] == 0.0f)
            ranked[i] = 0;
    __syncwarp();
}

__device__ inline void score(const route_args &a, uint32_t row, float *scores, float *ranked,
                             float *groups, uint32_t lane)
{
    const struct route_params &p = a.p;
    for (uint32_t i = lane; i < p.n_experts; i += WARP) {
        const float v = logit(a, row, i);
        scores[i] = p.scores == ROUTE_SIGMOID ? 1.0f / (1.0f + exp_rounded(-v)) : v;
    }
    __syncwarp();
    if (p.scores == ROUTE_SOFTMAX)
        warp_softmax(scores, p.n_experts, lane);
    for (uint32_t i = lane; i < p.n_experts; i += WARP)
        ranked[i] = scores[i] + (p.bias ? p.bias[i] : 0);
    __syncwarp();
    if (p.n_groups > 1)
        leave_groups_out(p, ranked, groups, lane);
    /* A chosen expert gets -infinity. All other experts stay above -infinity, so that no expert
     * is chosen twice when there are NaNs. */
    for (uint32_t i = lane; i < p.n_experts; i += WARP)
        ranked[i] = ranked[i] > -FLT_MAX ? ranked[i] : -FLT_MAX;
    __syncwarp();
}

/* Collects the chosen experts, marked -infinity in `ranked`, in ascending order. The function
 * writes their ids and scores. */
__device__ inline void collect(const struct route_params &p, const float *scores,
                               const float *ranked, uint32_t *ids, float *shares, uint32_t lane)
{
    uint32_t n = 0;
    for (uint32_t first = 0; first < p.n_experts; first += WARP) {
        const uint32_t i = first + lane;
        const bool is_chosen = i < p.n_experts && ranked[i] == -INFINITY;
        const uint32_t chosen = __ballot_sync(ALL_LANES, is_chosen);
        if (is_chosen) {
            const uint32_t at = n + __popc(chosen & ((1u << lane) - 1));
            ids[at] = i;
            shares[at] = scores[i];
        }
        n += __popc(chosen);
    }
    __syncwarp();
}

__global__ __launch_bounds__(WARP *MAX_WARPS) void route_kernel(const route_args a)
{
    CUDA_DYNAMIC_SHARED(float, shared);
    const struct route_params &p = a.p;
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint32_t row = blockIdx.x * (blockDim.x / WARP) + warp;
    float *scores = shared + (size_t)warp * a.n_shared, *ranked = scores + p.n_experts;
    float *shares = ranked + p.n_experts, *groups = shares + p.n_chosen;
    dependency_wait();
    dependency_launch();
    if (row >= p.n_rows)
        return;
    score(a, row, scores, ranked, groups, lane);
    for (uint32_t k = 0; k < p.n_chosen; k++) {
        const uint32_t best = warp_best(ranked, p.n_experts, lane);
        __syncwarp();
        if (best % WARP == lane)
            ranked[best] = -INFINITY;
        __syncwarp();
    }
    collect(p, scores, ranked, p.ids + (size_t)row * p.n_chosen, shares, lane);
    if (p.scores == ROUTE_SOFTMAX_OF_CHOSEN)
        warp_softmax(shares, p.n_chosen, lane);
    float sum = 0; /* shares are added in order, so every lane gets the same bits */
    for (uint32_t k = 0; k < p.n_chosen; k++)
        sum += shares[k];
    for (uint32_t k = lane; k < p.n_chosen; k += WARP)
        p.shares[(size_t)row * p.n_chosen + k] =
            (p.normalise && sum > 0 ? shares[k] / sum : shares[k]) * p.factor;
}
} // namespace

enum status cuda_route(struct gpu_stream *s, const struct route_params *p, bool logits_are_float,
                       struct error *err)
{
    const uint64_t n_shared = 2ull * p->n_experts + p->n_chosen + p->n_groups;
    if (p->n_experts == 0 || n_shared * sizeof(float) > MAX_SHARED_BYTES ||
        p->n_groups > ROUTE_MAX_GROUPS)
        return error_set(err, STATUS_UNSUPPORTED,
                         "choosing %u of %u experts in %u groups is not supported: the CUDA kernel "
                         "takes at most %u bytes of scores and %u groups",
                         p->n_chosen, p->n_experts, p->n_groups, MAX_SHARED_BYTES,
                         ROUTE_MAX_GROUPS);
    if (p->n_rows == 0 || p->n_chosen == 0)
        return STATUS_OK; /* CUDA refuses an empty grid */
    uint32_t n_warps = (uint32_t)(MAX_SHARED_BYTES / (n_shared * sizeof(float)));
    n_warps = n_warps < MAX_WARPS ? n_warps : MAX_WARPS;
    const route_args a = {*p, logits_are_float, (uint32_t)n_shared};
    TRY(gpu_enter(s->device, err));
    const cudaError_t e =
        launch_kernel(s, route_kernel, dim3((p->n_rows + n_warps - 1) / n_warps),
                      dim3(n_warps * WARP), n_warps * n_shared * sizeof(float), a);
    return gpu_check(e, "route", err);
}
