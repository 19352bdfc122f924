/* Computes log-probabilities of the raw logits, for the sampled id and the best k ids. It also
 * computes the sampled id's rank. A block has one row that asks for log-probabilities. The
 * kernel runs after the draw. */
#include "kernels/cuda/sample/select.cuh"

namespace
{
struct found {
    float value;
    uint32_t id;
};

/* Adds float terms, in float within a thread and in double across threads, in a fixed order. */
__device__ double sum_exp(const float *logits, uint32_t n, float shift)
{
    __shared__ double sums[SAMPLE_ROW_THREADS];
    float own = 0.0f;
    for (uint32_t i = threadIdx.x; i < n; i += SAMPLE_ROW_THREADS)
        own += expf(sample_number(logits[i]) - shift);
    sums[threadIdx.x] = own;
    __syncthreads();
    for (uint32_t half = SAMPLE_ROW_THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    return sums[0];
}

/* Returns a finite number even if there is no log-probability, because texts and messages cannot
 * contain an infinite number. */
__device__ inline float log_probability(float logit, float best, double sum)
{
    const double v = (double)sample_number(logit) - (double)best - log(sum);
    return v > -(double)FLT_MAX ? fminf((float)v, 0.0f) : -FLT_MAX;
}

/* Writes the best k ids of the row, in any order. */
__device__ void gather_top(const select_row &r, uint32_t k, select_shared &shared, found *out,
                           uint32_t *n)
{
    if (threadIdx.x == 0)
        *n = 0;
    const uint64_t edge = select_edge(r, k, 0.0, shared);
    for (uint32_t i = threadIdx.x; i < r.n; i += SAMPLE_ROW_THREADS) {
        const float v = sample_number(r.logits[i]);
        if (v == -INFINITY || sample_order(v, i) < edge)
            continue;
        const uint32_t at = atomicAdd(n, 1u);
        if (at < GPU_SAMPLE_MAX_LOGPROBS)
            out[at] = {v, i};
    }
    __syncthreads();
}

__global__ __launch_bounds__(SAMPLE_ROW_THREADS) void logprobs_kernel(const sample_args a)
{
    __shared__ select_shared shared;
    __shared__ found top[GPU_SAMPLE_MAX_LOGPROBS];
    __shared__ uint32_t n_top, n_better;
    const uint32_t i_row = blockIdx.x;
    const gpu_sample_row &row = a.p.rows[i_row];
    gpu_sampled &out = a.p.out[i_row];
    if (row.n_logprobs < 0)
        return;
    const float *logits = sample_has_changes(row)
                              ? a.s.copies + (size_t)i_row * a.p.vocab_size
                              : a.p.logits + (size_t)row.logits_row * a.p.stride;
    const float best = sample_row_top(a.s.raw + (size_t)i_row * SAMPLE_SLICES).best;
    const double sum = sum_exp(logits, a.p.vocab_size, best);
    const float mine = sample_number(logits[out.id]);
    if (threadIdx.x == 0)
        n_top = n_better = 0;
    __syncthreads();
    uint32_t better = 0;
    for (uint32_t i = threadIdx.x; i < a.p.vocab_size; i += SAMPLE_ROW_THREADS)
        better += sample_number(logits[i]) > mine;
    if (better > 0)
        atomicAdd(&n_better, better);
    const select_row r = {logits, a.p.vocab_size, best, -INFINITY, 0, 1.0f, false};
    const uint32_t k = min(min((uint32_t)row.n_logprobs, GPU_SAMPLE_MAX_LOGPROBS), a.p.vocab_size);
    if (k > 0 && best > -INFINITY)
        gather_top(r, k, shared, top, &n_top);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n_top; i += SAMPLE_ROW_THREADS) {
        uint32_t place = 0;
        for (uint32_t j = 0; j < n_top; j++)
            place += sample_is_better(top[j].value, top[j].id, top[i].value, top[i].id);
        out.top_ids[place] = top[i].id;
        out.top_logprobs[place] = log_probability(top[i].value, best, sum);
    }
    if (threadIdx.x == 0) {
        out.rank = n_better + 1;
        out.logprob = log_probability(mine, best, sum);
        out.n_top = n_top;
    }
}
} // namespace

cudaError_t sample_enqueue_logprobs(const sample_args &a, cudaStream_t stream)
{
    return sample_launch(logprobs_kernel, a, dim3(a.p.n_rows), SAMPLE_ROW_THREADS, stream);
}
