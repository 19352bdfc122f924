/* Computes the RMS norm over bfloat16. A unit is one part of one row. Its threads (16 to 1024,
 * depending on dim alone) process chunks of 8 elements in turn: thread t has the chunks at 8 *
 * (t, t + THREADS, ...). The threads keep the elements in registers, so that memory is read
 * once. They add the squares in a fixed order: within a thread element by element, then by
 * threads_sum. Elements beyond dim count as zero and change no bit. The way a chunk is loaded
 * (16 bytes at once or one by one) does not change the order either. The bits of a unit
 * therefore depend on its values, dim, eps and w alone. Contraction is off (cmake/Cuda.cmake);
 * fused operations are written as fmaf. */
#include "kernels/cuda/device/chunks.cuh"
#include "kernels/cuda/device/launch.cuh"

extern "C" {
#include "kernels/cuda/rows/abi.h"
}

namespace
{
/* least number of threads of a block; units with fewer threads share a block */
constexpr uint32_t BLOCK_THREADS = 256;

struct norm_args {
    uint16_t *out, *x;
    const uint16_t *y;
    const float *w;
    uint32_t out_stride, x_stride, y_stride;
    uint32_t n_units, n_parts, dim;
    float eps;
    /* `sums` has, for each row, the sum of squares of `whole` elements; NULL: the kernel
     * computes it. */
    const float *sums;
    uint32_t whole;
};

template <unsigned THREADS, unsigned CHUNKS, bool ADD, bool VECTOR>
__global__ __launch_bounds__(THREADS < BLOCK_THREADS ? BLOCK_THREADS
                                                     : THREADS) void norm_kernel(const norm_args a)
{
    const uint32_t thread = threadIdx.x % THREADS;
    const uint32_t unit = blockIdx.x * (blockDim.x / THREADS) + threadIdx.x / THREADS;
    /* Threads beyond the last unit add zeros to their warp's sums. */
    const uint32_t dim = unit < a.n_units ? a.dim : 0;
    const size_t row = unit / a.n_parts;
    const size_t column = (size_t)(unit % a.n_parts) * a.dim;
    uint16_t *x = a.x + row * a.x_stride + column;
    const uint16_t *y = ADD ? a.y + row * a.y_stride + column : nullptr;
    uint16_t *out = a.out + row * a.out_stride + column;

    dependency_wait();
    dependency_launch();
    uint4 chunks[CHUNKS];
#pragma unroll
    for (unsigned c = 0; c < CHUNKS; c++)
        chunks[c] = chunk_load<VECTOR>(x, (c * THREADS + thread) * CHUNK, dim);
    if (ADD) {
#pragma unroll
        for (unsigned c = 0; c < CHUNKS; c++) {
            const uint32_t first = (c * THREADS + thread) * CHUNK;
            chunks[c] = chunk_add(chunks[c], chunk_load<VECTOR>(y, first, dim));
            chunk_store<VECTOR>(x, first, dim, chunks[c]);
        }
    }
    float sum = 0.0f;
    if (a.sums) {
        sum = dim > 0 ? a.sums[row] : 0.0f;
    } else {
#pragma unroll
        for (unsigned c = 0; c < CHUNKS; c++) {
            float v[CHUNK];
            chunk_unpack(chunks[c], v);
#pragma unroll
            for (uint32_t i = 0; i < CHUNK; i++)
                sum = fmaf(v[i], v[i], sum);
        }
        sum = threads_sum<THREADS>(sum);
    }
    const float scale = 1.0f / sqrtf(sum / (float)(a.sums ? a.whole : a.dim) + a.eps);
#pragma unroll
    for (unsigned c = 0; c < CHUNKS; c++) {
        const uint32_t first = (c * THREADS + thread) * CHUNK;
        float v[CHUNK], w[CHUNK];
        chunk_unpack(chunks[c], v);
        weights_load<VECTOR>(a.w, first, dim, w);
#pragma unroll
        for (uint32_t i = 0; i < CHUNK; i++)
            v[i] = v[i] * scale * w[i];
        chunk_store<VECTOR>(out, first, dim, chunk_pack(v));
    }
}

template <unsigned THREADS, unsigned CHUNKS, bool ADD, bool VECTOR>
cudaError_t enqueue(const norm_args &a, const struct gpu_stream *s)
{
    constexpr unsigned block = THREADS < BLOCK_THREADS ? BLOCK_THREADS : THREADS;
    constexpr unsigned n_units = block / THREADS;
    const dim3 grid(a.n_units / n_units + (a.n_units % n_units != 0));
    return launch_kernel(s, norm_kernel<THREADS, CHUNKS, ADD, VECTOR>, grid, dim3(block), 0, a);
}

template <bool ADD, bool VECTOR>
cudaError_t enqueue_dim(const norm_args &a, const struct gpu_stream *s)
{
    return a.dim <= 128     ? enqueue<16, 1, ADD, VECTOR>(a, s)
           : a.dim <= 256   ? enqueue<32, 1, ADD, VECTOR>(a, s)
           : a.dim <= 1024  ? enqueue<32, 4, ADD, VECTOR>(a, s)
           : a.dim <= 2048  ? enqueue<256, 1, ADD, VECTOR>(a, s)
           : a.dim <= 8192  ? enqueue<256, 4, ADD, VECTOR>(a, s)
           : a.dim <= 16384 ? enqueue<512, 4, ADD, VECTOR>(a, s)
                            : enqueue<1024, 4, ADD, VECTOR>(a, s);
}

template <bool ADD>
enum status norm(struct gpu_stream *s, const struct norm_params *p, struct view y,
                 struct error *err)
{
    const uint64_t n_units = (uint64_t)p->n_rows * p->n_parts;
    if (p->dim > CUDA_NORM_MAX_DIM || n_units > INT32_MAX)
        return error_set(err, STATUS_UNSUPPORTED,
                         "a norm of %u rows with %u parts of %u elements is not supported: the "
                         "CUDA kernel takes at most %u elements a part and %d parts in total",
                         p->n_rows, p->n_parts, p->dim, CUDA_NORM_MAX_DIM, INT32_MAX);
    if (n_units == 0 || p->dim == 0)
        return STATUS_OK; /* CUDA refuses an empty grid */
    norm_args a = {};
    a.out = static_cast<uint16_t *>(p->out.data), a.out_stride = p->out.stride;
    a.x = static_cast<uint16_t *>(p->x.data), a.x_stride = p->x.stride;
    a.y = static_cast<const uint16_t *>(y.data), a.y_stride = y.stride;
    a.w = p->w, a.eps = p->eps;
    a.n_units = (uint32_t)n_units, a.n_parts = p->n_parts, a.dim = p->dim;
    a.sums = p->sums, a.whole = p->whole;
    const bool vector = chunk_is_aligned(a.out, a.out_stride) &&
                        chunk_is_aligned(a.x, a.x_stride) && chunk_is_aligned(a.y, a.y_stride) &&
                        chunk_is_aligned(a.w, 0) && (a.n_parts == 1 || a.dim % CHUNK == 0);
    TRY(gpu_enter(s->device, err));
    const cudaError_t e = vector ? enqueue_dim<ADD, true>(a, s) : enqueue_dim<ADD, false>(a, s);
    return gpu_check(e, ADD ? "add_norm_bf16" : "norm_bf16", err);
}
} // namespace

enum status cuda_norm_bf16(struct gpu_stream *s, const struct norm_params *p, struct error *err)
{
    const struct view none = {};
    return norm<false>(s, p, none, err);
}

enum status cuda_add_norm_bf16(struct gpu_stream *s, const struct add_norm_params *p,
                               struct error *err)
{
    return norm<true>(s, &p->norm, p->y, err);
}
