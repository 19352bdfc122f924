#pragma once
/* Finds the least order (args.cuh) of the best ids of a row: a given number of ids, or as few as
 * reach a given weight. A block of SAMPLE_ROW_THREADS reads the row a few times. A histogram of
 * the eligible ids gives the bin that contains the edge, and the next histogram divides that
 * bin, until a whole bin is selected. The least order in that bin is the result.
 * Bins are distances from the row's largest logit in steps of 1/64, then of 1/131072, which
 * spreads logits evenly. Bins by a float's bits would put most of a vocabulary into a few bins,
 * whose atomics wait for each other. For logits that are closer than 1/131072, the bins are the
 * logits' order itself, eleven bits at a time. Weights are fixed-point numbers, because integers
 * have the same sum in any order. */
#include "kernels/cuda/sample/args.cuh"

constexpr uint32_t SELECT_BINS = 2048, SELECT_BITS = 11;
constexpr uint32_t SELECT_BY_ORDER = 2; /* first level whose bins are the order itself */
constexpr uint32_t SELECT_LEVELS = SELECT_BY_ORDER + (64 + SELECT_BITS - 1) / SELECT_BITS;

/* `select_row` describes the ids of a row that may be selected, and their weights. */
struct select_row {
    const float *logits;
    uint32_t n;
    float max;      /* largest logit; distances are measured from it */
    float least;    /* smaller logits are not eligible, and neither is -inf */
    uint64_t order; /* ids of a lower order are not eligible */
    float inverse;  /* 1 / temperature */
    bool by_weight; /* whether ids have weights; false: each id weighs 1 */
};

struct select_shared {
    unsigned long long weights[SELECT_BINS], warp_sums[SAMPLE_ROW_THREADS / SAMPLE_WARP];
    unsigned long long above, least_order;
    uint32_t counts[SELECT_BINS], chosen[SELECT_LEVELS], bin;
};

/* Returns an id's weight. The unit is 2^-45 of the largest probability, so 2^18 ids of that
 * weight fit. */
__device__ inline uint64_t select_weight(const select_row &r, float v)
{
    return r.by_weight ? (uint64_t)(__expf((v - r.max) * r.inverse) * 0x1p45f) : 1;
}

__device__ inline uint32_t select_digit(uint64_t order, uint32_t level)
{
    const int shift = 64 - (int)SELECT_BITS * (int)(level - SELECT_BY_ORDER + 1);
    const uint64_t digit = shift >= 0 ? order >> shift : order << -shift;
    return SELECT_BINS - 1 - (uint32_t)(digit % SELECT_BINS); /* the best id has the lowest bin */
}

__device__ inline uint32_t select_bin(const select_row &r, float v, uint32_t id, uint32_t level)
{
    const float x = fminf((r.max - v) * 64.0f, (float)SELECT_BINS - 1.0f), whole = floorf(x);
    return level == 0   ? (uint32_t)whole
           : level == 1 ? (uint32_t)((x - whole) * (float)SELECT_BINS)
                        : select_digit(sample_order(v, id), level);
}

/* Returns whether an id is eligible and in the bins that were chosen on the first n levels. */
__device__ inline bool select_is_inside(const select_row &r, float v, uint32_t id, uint32_t n,
                                        const uint32_t *chosen)
{
    if (v == -INFINITY || v < r.least || sample_order(v, id) < r.order)
        return false;
    for (uint32_t level = 0; level < n; level++)
        if (select_bin(r, v, id, level) != chosen[level])
            return false;
    return true;
}

__device__ inline void select_count(const select_row &r, uint32_t level, select_shared &s)
{
    for (uint32_t i = threadIdx.x; i < SELECT_BINS; i += SAMPLE_ROW_THREADS) {
        s.weights[i] = 0;
        s.counts[i] = 0;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < r.n; i += SAMPLE_ROW_THREADS) {
        const float v = sample_number(r.logits[i]);
        if (!select_is_inside(r, v, i, level, s.chosen))
            continue;
        const uint32_t bin = select_bin(r, v, i, level);
        atomicAdd(&s.counts[bin], 1u);
        if (r.by_weight)
            atomicAdd(&s.weights[bin], (unsigned long long)select_weight(r, v));
    }
    __syncthreads();
}

/* Adds up the sums of all threads' bins (two each) into *total. Returns the sum of the bins
 * before this thread's. */
__device__ inline uint64_t select_scan(uint64_t own, select_shared &s, uint64_t *total)
{
    const uint32_t lane = threadIdx.x % SAMPLE_WARP, warp = threadIdx.x / SAMPLE_WARP;
    unsigned long long sum = own;
    for (uint32_t step = 1; step < SAMPLE_WARP; step *= 2) {
        const unsigned long long before = __shfl_up_sync(SAMPLE_ALL, sum, step);
        sum += lane >= step ? before : 0;
    }
    if (lane == SAMPLE_WARP - 1)
        s.warp_sums[warp] = sum;
    __syncthreads();
    uint64_t in_front = 0, all = 0;
    for (uint32_t i = 0; i < SAMPLE_ROW_THREADS / SAMPLE_WARP; i++) {
        in_front += i < warp ? s.warp_sums[i] : 0;
        all += s.warp_sums[i];
    }
    *total = all;
    return in_front + sum - own;
}

/* Finds the bin in which the sum reaches target > 0, and the sum before that bin. */
__device__ inline void select_find(uint64_t target, uint64_t in_front, const uint64_t *own,
                                   select_shared &s)
{
    for (uint32_t i = 0; i < 2; i++) {
        if (in_front < target && target <= in_front + own[i]) {
            s.bin = 2 * threadIdx.x + i;
            s.above = in_front;
        }
        in_front += own[i];
    }
    __syncthreads();
}

__device__ inline uint64_t select_least(const select_row &r, uint32_t n_levels, select_shared &s)
{
    if (threadIdx.x == 0)
        s.least_order = ~0ull;
    __syncthreads();
    unsigned long long least = ~0ull;
    for (uint32_t i = threadIdx.x; i < r.n; i += SAMPLE_ROW_THREADS) {
        const float v = sample_number(r.logits[i]);
        if (select_is_inside(r, v, i, n_levels, s.chosen))
            least = min(least, (unsigned long long)sample_order(v, i));
    }
    if (least != ~0ull)
        atomicMin(&s.least_order, least);
    __syncthreads();
    return s.least_order;
}

/* Returns the least order of the selected ids, in every thread; 0 means all ids. Without
 * by_weight it selects the best `count` ids, or all if there are fewer. With by_weight it
 * selects the fewest best ids that weigh `part` of the total, at least one. */
__device__ inline uint64_t select_edge(const select_row &r, uint64_t count, double part,
                                       select_shared &s)
{
    static_assert(SELECT_BINS == 2 * SAMPLE_ROW_THREADS, "two bins for each thread");
    uint64_t target = count;
    for (uint32_t level = 0; level < SELECT_LEVELS; level++) {
        select_count(r, level, s);
        uint64_t own[2], total;
        for (uint32_t i = 0; i < 2; i++)
            own[i] = r.by_weight ? s.weights[2 * threadIdx.x + i] : s.counts[2 * threadIdx.x + i];
        const uint64_t in_front = select_scan(own[0] + own[1], s, &total);
        if (level == 0) {
            if (r.by_weight)
                target = max((uint64_t)ceil(part * (double)total), (uint64_t)1);
            if (total <= target)
                return 0;
        }
        select_find(target, in_front, own, s);
        const uint32_t bin = s.bin;
        target -= s.above;
        const uint32_t n_inside = s.counts[bin];
        const bool all = n_inside == 1 || (!r.by_weight && target == n_inside);
        if (threadIdx.x == 0)
            s.chosen[level] = bin;
        __syncthreads();
        if (all || level + 1 == SELECT_LEVELS)
            return select_least(r, level + 1, s);
    }
    return 0;
}
