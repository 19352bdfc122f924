/* Makes the two operands of the product that expands latents into keys and values. One operand
 * is the cached latents of several sequences as rows without gaps. The other is the projections
 * of all heads as one matrix. backend/latent.c calls this file. blas.cu computes the product
 * itself. All work is enqueued on the caller's stream, and the operands are in the operator's
 * scratch.
 *
 * Movement of bytes: a warp copies one latent. Each lane loads 16 bytes at successive places,
 * and issues all loads before the first store. For a matrix, a warp has 16 outputs and 64 inputs
 * in shared memory. An output's 128 bytes are written at once. The matrix of keys is transposed,
 * so that 32 bytes are written for each input. */
#include "kernels/cuda/attention/expansion.h"
#include "kernels/cuda/attention/launch.cuh"
#include "kernels/cuda/attention/load.cuh"
#include "kernels/cuda/moe/grouped.cuh"
#include "kernels/cuda/weights/dequantise.cuh"

namespace
{
constexpr uint32_t WARPS = 8, MAX_PIECES = (CUDA_LATENT_RANK + CUDA_LATENT_ROPE) / 8;

struct gather_args {
    attention_args a; /* holds the fields of the cache and the rows */
    const cuda_latent_run *runs;
    uint32_t n_runs, first, n, key_begin, rope;
    uint16_t *latents, *ropes;
};

/* Returns the last run that begins at or before a key of the batch. */
__device__ inline cuda_latent_run run_find(const gather_args &g, uint32_t key)
{
    uint32_t begin = 0, end = g.n_runs;
    while (end - begin > 1) {
        const uint32_t middle = (begin + end) / 2;
        if (g.runs[middle].first_key <= key)
            begin = middle;
        else
            end = middle;
    }
    return g.runs[begin];
}

__global__ __launch_bounds__(32 * WARPS) void latent_gather_kernel(const gather_args g)
{
    const attention_args &a = g.a;
    const uint32_t i = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    dependency_wait();
    dependency_launch();
    if (i >= g.n)
        return;
    const cuda_latent_run run = run_find(g, g.first + i);
    const kv_row row = a.rows[run.first_row];
    attention_task t = {};
    t.last_key = UINT32_MAX, t.blocks = row.blocks, t.n_dropped = row.n_dropped;
    const token_place place = token_find(a, t, g.first + i - run.first_key + g.key_begin);
    const uint8_t *token = token_at(a, a.k, t, place);
    float scale = 1.0f, rest_scale = 1.0f;
    if (a.k_scales) {
        const float *both = scale_at(a, a.k_scales, t, place);
        scale = both[0], rest_scale = both[a.block_tokens];
    }
    uint4 pieces[(MAX_PIECES + 31) / 32];
#pragma unroll
    for (uint32_t j = 0; j < (MAX_PIECES + 31) / 32; j++) {
        const uint32_t at = (j * 32 + lane) * 8;
        if (at < a.head_dim)
            pieces[j] = a.is_plain ? *reinterpret_cast<const uint4 *>(token + at * 2)
                                   : token_chunk(a, token, at, scale, rest_scale);
    }
#pragma unroll
    for (uint32_t j = 0; j < (MAX_PIECES + 31) / 32; j++) {
        const uint32_t at = (j * 32 + lane) * 8;
        if (at >= a.head_dim)
            continue;
        uint16_t *to = at < a.v_dim ? g.latents + (size_t)i * a.v_dim + at
                                    : g.ropes + (size_t)(g.first + i) * g.rope + (at - a.v_dim);
        *reinterpret_cast<uint4 *>(to) = pieces[j];
    }
}

/* `weights_args` describes the copy of a table's matrices. Matrix h of the table is [n][k]. Its
 * element (output i, input j) is copied to element j of row first + i of head h, or transposed
 * to element i of row first + j. Rows have `stride` elements. */
struct weights_args {
    const grouped_matrix *table;
    uint16_t *to;
    uint32_t n, k, group, first, head_rows, stride, n_spans, n_units;
    uint32_t n_filled; /* number of outputs, with the zeros behind them up to a whole row tile */
    bool transposed;
};

/* Returns column k of rows `row` and `row` + 1, as two bfloat16. */
__device__ inline uint32_t column_pair(const dequantise_lines &lines, uint32_t row, uint32_t k)
{
    const uint32_t shift = k % 2 * 16;
    return (lines[row][k / 2] >> shift & 0xffffu) | lines[row + 1][k / 2] >> shift << 16;
}

__device__ inline void rows_store(const weights_args &a, const dequantise_lines &lines,
                                  uint16_t *head, uint32_t output, uint32_t k0)
{
    const uint32_t lane = threadIdx.x % 32, k = k0 + lane % 8 * 8;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) { /* eight lanes write a row */
        const uint32_t row = 4 * i + lane / 8;
        if (output + row < a.n_filled && k < a.k)
            *reinterpret_cast<uint4 *>(head + (size_t)(a.first + output + row) * a.stride + k) =
                *reinterpret_cast<const uint4 *>(&lines[row][lane % 8 * 4]);
    }
}

__device__ inline void columns_store(const weights_args &a, const dequantise_lines &lines,
                                     uint16_t *head, uint32_t output, uint32_t k0)
{
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) { /* two lanes write a column */
        const uint32_t k = i * 16 + threadIdx.x % 32 / 2, row = threadIdx.x % 2 * 8;
        if (output + row < a.n && k0 + k < a.k)
            *reinterpret_cast<uint4 *>(head + (size_t)(a.first + k0 + k) * a.stride + output +
                                       row) =
                make_uint4(column_pair(lines, row, k), column_pair(lines, row + 2, k),
                           column_pair(lines, row + 4, k), column_pair(lines, row + 6, k));
    }
}

template <enum gpu_format F>
__global__ __launch_bounds__(32 * WARPS) void latent_weights_kernel(const weights_args a)
{
    __shared__ __align__(16) dequantise_lines lines[WARPS];
    const uint32_t warp = threadIdx.x / 32, unit = blockIdx.x * WARPS + warp;
    dependency_wait(); /* the previous attention reads the buffer that this kernel writes */
    dependency_launch();
    if (unit >= a.n_units)
        return;
    const gpu_matrix w = a.table[blockIdx.y].w;
    const uint32_t tile = unit / a.n_spans, k0 = unit % a.n_spans * DEQUANTISE_SPAN;
    const size_t skip = (size_t)tile * w.tile_bytes;
    dequantise_span<F>(lines[warp], static_cast<const uint8_t *>(w.codes) + skip,
                       static_cast<const uint8_t *>(w.scales) + skip, k0, a.k, w.group);
    __syncwarp();
    uint16_t *head = a.to + (size_t)blockIdx.y * a.head_rows * a.stride;
    if (a.transposed)
        columns_store(a, lines[warp], head, tile * GPU_TILE_N, k0);
    else
        rows_store(a, lines[warp], head, tile * GPU_TILE_N, k0);
}

template <enum gpu_format F>
cudaError_t enqueue(const weights_args &a, uint32_t n_heads, const struct gpu_stream *s)
{
    return launch_kernel(s, latent_weights_kernel<F>,
                         dim3((a.n_units + WARPS - 1) / WARPS, n_heads), dim3(32 * WARPS), 0, a);
}

enum status enqueue_format(enum gpu_format format, const weights_args &a, uint32_t n_heads,
                           const struct gpu_stream *s, struct error *err)
{
    switch (format) {
#define FORMAT(name)                                                                               \
    case name:                                                                                     \
        return gpu_check(enqueue<name>(a, n_heads, s), "latent_weights", err)
        FORMAT(GPU_BF16);
        FORMAT(GPU_U4);
        FORMAT(GPU_U4_MIN);
        FORMAT(GPU_I8);
        FORMAT(GPU_I8_MIN);
        FORMAT(GPU_F8);
        FORMAT(GPU_MX4);
#undef FORMAT
    case GPU_FORMAT_COUNT:
        break;
    }
    return error_set(err, STATUS_INTERNAL,
                     "the latent weights have format %d, for which there is no kernel",
                     (int)format);
}

enum status heads_enqueue(const struct gpu_stream *s, const struct heads_params *p, weights_args a,
                          struct error *err)
{
    struct gpu_matrix m;
    if (!gpu_matrix_of_weight(p->first, &m))
        return error_set(err, STATUS_INTERNAL,
                         "the latent weights are %s, for which there is no kernel",
                         dtype_traits(p->first->dtype).name);
    a.table = static_cast<const grouped_matrix *>(p->table);
    a.n = m.n, a.k = m.k, a.group = m.group;
    a.n_filled = (m.n + 7) / 8 * 8;
    a.n_spans = (m.k + DEQUANTISE_SPAN - 1) / DEQUANTISE_SPAN;
    a.n_units = gpu_n_row_tiles(&m) * a.n_spans;
    return enqueue_format(m.format, a, p->n_heads, s, err);
}
} // namespace

enum status cuda_latent_weights(struct gpu_stream *s, const struct cuda_latent_shape *shape,
                                const struct heads_params *keys, const struct heads_params *values,
                                void *to, struct error *err)
{
    weights_args a = {};
    a.to = static_cast<uint16_t *>(to);
    a.head_rows = cuda_latent_head(shape), a.stride = shape->kv_rank;
    a.transposed = true;
    TRY(gpu_enter(s->device, err));
    TRY(heads_enqueue(s, keys, a, err));
    a.transposed = false, a.first = shape->nope;
    return heads_enqueue(s, values, a, err);
}

enum status cuda_latent_gather(struct gpu_stream *s, const struct cuda_latent_keys *p,
                               struct error *err)
{
    struct attention_params of = {};
    gather_args g = {};
    of.rows = p->rows, of.kv = p->kv;
    g.a = attention_args_of(&of);
    g.runs = p->runs, g.n_runs = p->n_runs;
    g.first = p->first, g.n = p->n, g.key_begin = p->key_begin;
    g.rope = p->kv->head_dim - p->kv->v_dim;
    g.latents = static_cast<uint16_t *>(p->latents), g.ropes = static_cast<uint16_t *>(p->ropes);
    if (p->n == 0)
        return STATUS_OK;
    TRY(gpu_enter(s->device, err));
    return gpu_check(launch_kernel(s, latent_gather_kernel, dim3((g.n + WARPS - 1) / WARPS),
                                   dim3(32 * WARPS), 0, g),
                     "latent_gather", err);
}
