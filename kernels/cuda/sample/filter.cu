/* Implements min_p, top_k and top_p as one number for each row: the least order of the ids that
 * pass. Each of the three filters keeps the best ids, so each filter shortens the result of the
 * previous filter. A block has one row, and a row without filters costs only its launch. top_p
 * adds float probabilities, while the host's sampler adds double probabilities. An id whose sum
 * is within a millionth of the edge may therefore be on either side. */
#include "kernels/cuda/sample/select.cuh"

namespace
{
/* Returns the least float v with v / temperature >= max / temperature + log(min_p), computed in
 * double. */
__device__ float least_by_min_p(const gpu_sample_row &row, float max)
{
    const double temperature = row.temperature;
    const double limit = (double)max / temperature + log(fmin((double)row.min_p, 1.0));
    float v = (float)(limit * temperature);
    while ((double)v / temperature >= limit && v > -FLT_MAX)
        v = nextafterf(v, -INFINITY);
    while ((double)v / temperature < limit)
        v = nextafterf(v, INFINITY);
    return v;
}

__global__ __launch_bounds__(SAMPLE_ROW_THREADS) void filter_kernel(const sample_args a)
{
    __shared__ select_shared shared;
    __shared__ float least;
    const uint32_t i_row = blockIdx.x;
    const gpu_sample_row &row = a.p.rows[i_row];
    if (!sample_has_filters(row, a.p.vocab_size))
        return;
    const sample_top top = sample_row_top(sample_slices(a, i_row));
    if (threadIdx.x == 0)
        least =
            row.min_p > 0.0f && top.best > -INFINITY ? least_by_min_p(row, top.best) : -INFINITY;
    __syncthreads();
    select_row r = {a.p.logits + (size_t)row.logits_row * a.p.stride,
                    a.p.vocab_size,
                    top.best,
                    least,
                    0,
                    1.0f / row.temperature,
                    false};
    /* `threshold` is the result without top_k and top_p: the least order of a logit that passes
     * min_p. */
    uint64_t threshold = least > -INFINITY ? (uint64_t)sample_key(least) << 32 : 0;
    if (top.best > -INFINITY) {
        if (row.top_k > 0 && row.top_k < a.p.vocab_size)
            r.order = select_edge(r, row.top_k, 0.0, shared);
        r.by_weight = true;
        const uint64_t edge =
            row.top_p < 1.0f ? select_edge(r, 0, fmax((double)row.top_p, 0.0), shared) : 0;
        threshold = max(threshold, max(r.order, edge));
    }
    if (threadIdx.x == 0)
        a.s.states[i_row].threshold = threshold;
}
} // namespace

cudaError_t sample_enqueue_filter(const sample_args &a, cudaStream_t stream)
{
    return sample_launch(filter_kernel, a, dim3(a.p.n_rows), SAMPLE_ROW_THREADS, stream);
}
