/* Implements element-wise operators over bfloat16 rows, behind rows/abi.h; backend/rows.c calls
 * them. They are bound by memory: a thread processes one chunk of 16 bytes of each operand, and
 * neighbours process neighbouring chunks. Blocks of 256 threads are along a row and rows along
 * the grid's second dimension, so that a pass of one row still has several blocks.
 * Each kernel is launched early (launch.cuh): between two kernels of a decode step, a kernel
 * waits only for its data. Rows may have any alignment; the bits do not depend on it. */
#include "kernels/cuda/device/activation.cuh"
#include "kernels/cuda/device/chunks.cuh"
#include "kernels/cuda/device/launch.cuh"

extern "C" {
#include "kernels/cuda/rows/abi.h"
}

namespace
{
constexpr uint32_t THREADS = 256;
constexpr uint32_t MAX_GRID_ROWS = 65535; /* limit of a grid's second dimension */

struct rows_in {
    const uint16_t *data;
    uint32_t stride;
    bool vector;
};
struct rows_out {
    uint16_t *data;
    uint32_t stride;
    bool vector;
};

rows_in in_of(struct view v)
{
    return {static_cast<const uint16_t *>(v.data), v.stride, chunk_is_aligned(v.data, v.stride)};
}
rows_out out_of(struct view v)
{
    return {static_cast<uint16_t *>(v.data), v.stride, chunk_is_aligned(v.data, v.stride)};
}

__device__ __forceinline__ void read(const rows_in &r, size_t row, uint32_t first, uint32_t dim,
                                     float *out)
{
    chunk_read(r.vector, r.data + row * r.stride, first, dim, out);
}
__device__ __forceinline__ void read(const rows_out &r, size_t row, uint32_t first, uint32_t dim,
                                     float *out)
{
    chunk_read(r.vector, r.data + row * r.stride, first, dim, out);
}
__device__ __forceinline__ void write(const rows_out &r, size_t row, uint32_t first, uint32_t dim,
                                      const float *v)
{
    chunk_write(r.vector, r.data + row * r.stride, first, dim, v);
}

/* Calls f(row, i) for each of n units of each row. A unit is a chunk, or F defines it. */
template <class F>
__global__ __launch_bounds__(THREADS) void rows_kernel(const F f, uint32_t n_rows, uint32_t n)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    dependency_wait();
    dependency_launch();
    if (i >= n)
        return;
    for (uint32_t row = blockIdx.y; row < n_rows; row += gridDim.y)
        f(row, i);
}

template <class F>
enum status run(struct gpu_stream *s, const F &f, uint32_t n_rows, uint32_t n, const char *name,
                struct error *err)
{
    if (n_rows == 0 || n == 0)
        return STATUS_OK; /* CUDA refuses an empty grid */
    const dim3 grid((n + THREADS - 1) / THREADS, n_rows < MAX_GRID_ROWS ? n_rows : MAX_GRID_ROWS);
    TRY(gpu_enter(s->device, err));
    return gpu_check(launch_kernel(s, rows_kernel<F>, grid, dim3(THREADS), 0, f, n_rows, n), name,
                     err);
}

uint32_t n_chunks(uint32_t dim)
{
    return dim / CHUNK + (dim % CHUNK != 0);
}

/* ---- operations on a chunk ---- */

struct gather_chunk {
    rows_out out;
    rows_in x;
    const uint32_t *rows;
    uint32_t dim;
    __device__ void operator()(uint32_t row, uint32_t i) const
    {
        float v[CHUNK];
        read(x, rows[row], i * CHUNK, dim, v);
        write(out, row, i * CHUNK, dim, v);
    }
};

struct clear_chunk {
    rows_out x;
    uint32_t dim;
    __device__ void operator()(uint32_t row, uint32_t i) const
    {
        const float zeros[CHUNK] = {};
        write(x, row, i * CHUNK, dim, zeros);
    }
};

struct add_chunk {
    rows_out x;
    rows_in y;
    uint32_t dim;
    __device__ void operator()(uint32_t row, uint32_t i) const
    {
        float a[CHUNK], b[CHUNK];
        read(x, row, i * CHUNK, dim, a);
        read(y, row, i * CHUNK, dim, b);
#pragma unroll
        for (uint32_t k = 0; k < CHUNK; k++)
            a[k] += b[k];
        write(x, row, i * CHUNK, dim, a);
    }
};

template <enum activation ACT> struct gated_chunk {
    rows_out out;
    rows_in gate, up;
    uint32_t dim;
    float limit;
    __device__ void operator()(uint32_t row, uint32_t i) const
    {
        float g[CHUNK], u[CHUNK];
        read(gate, row, i * CHUNK, dim, g);
        read(up, row, i * CHUNK, dim, u);
#pragma unroll
        for (uint32_t k = 0; k < CHUNK; k++)
            g[k] = activation_of<ACT>(g[k], u[k], limit);
        write(out, row, i * CHUNK, dim, g);
    }
};

struct gate_rows_chunk {
    rows_out x;
    rows_in gate;
    uint32_t dim;
    __device__ void operator()(uint32_t row, uint32_t i) const
    {
        float v[CHUNK];
        const uint32_t bits = gate.data[(size_t)row * gate.stride];
        const float share = activation_sigmoid(__uint_as_float(bits << 16));
        read(x, row, i * CHUNK, dim, v);
#pragma unroll
        for (uint32_t k = 0; k < CHUNK; k++)
            v[k] *= share;
        write(x, row, i * CHUNK, dim, v);
    }
};

/* In `copy_heads_chunk`, a unit is a chunk of one head: head i / per_head, chunk i % per_head. */
struct copy_heads_chunk {
    rows_in from;
    rows_out to;
    uint32_t from_stride, to_stride, n, per_head;
    __device__ void operator()(uint32_t row, uint32_t i) const
    {
        float v[CHUNK];
        const size_t head = i / per_head;
        const uint32_t first = i % per_head * CHUNK;
        chunk_read(from.vector, from.data + (size_t)row * from.stride + head * from_stride, first,
                   n, v);
        chunk_write(to.vector, to.data + (size_t)row * to.stride + head * to_stride, first, n, v);
    }
};

/* ---- rotary embedding ---- */

/* In `rope_chunk`, a unit is 8 pairs of one head: elements from `first` on, and their partners,
 * which are half a vector further or next to them. */
struct rope_chunk {
    rows_out x;
    const float2 *cos_sin; /* `cos_sin` has the shape [rows][half] */
    uint32_t head_dim, half, per_head;
    bool interleaved;
    __device__ void turn(float *a, float *b, const float2 *at, uint32_t first) const
    {
#pragma unroll
        for (uint32_t k = 0; k < CHUNK; k++) {
            const float2 cs = first + k < half ? at[first + k] : make_float2(1.0f, 0.0f);
            const float p = a[k], q = b[k];
            a[k] = p * cs.x - q * cs.y;
            b[k] = q * cs.x + p * cs.y;
        }
    }
    __device__ void operator()(uint32_t row, uint32_t i) const
    {
        uint16_t *head = x.data + (size_t)row * x.stride + (size_t)(i / per_head) * head_dim;
        const uint32_t first = i % per_head * CHUNK;
        const float2 *at = cos_sin + (size_t)row * half;
        float a[CHUNK], b[CHUNK], v[2 * CHUNK];
        if (!interleaved) {
            chunk_read(x.vector, head, first, half, a);
            chunk_read(x.vector, head + half, first, half, b);
            turn(a, b, at, first);
            chunk_write(x.vector, head, first, half, a);
            chunk_write(x.vector, head + half, first, half, b);
            return;
        }
        for (uint32_t k = 0; k < 2; k++)
            chunk_read(x.vector, head, 2 * first + k * CHUNK, 2 * half, v + k * CHUNK);
#pragma unroll
        for (uint32_t k = 0; k < CHUNK; k++)
            a[k] = v[2 * k], b[k] = v[2 * k + 1];
        turn(a, b, at, first);
#pragma unroll
        for (uint32_t k = 0; k < CHUNK; k++)
            v[2 * k] = a[k], v[2 * k + 1] = b[k];
        for (uint32_t k = 0; k < 2; k++)
            chunk_write(x.vector, head, 2 * first + k * CHUNK, 2 * half, v + k * CHUNK);
    }
};

struct rope_table_pair {
    const uint32_t *positions;
    const float *inv_freqs;
    float2 *out;
    uint32_t n_freqs;
    float scale;
    __device__ void operator()(uint32_t row, uint32_t i) const
    {
        const float angle = (float)positions[row] * inv_freqs[i];
        out[(size_t)row * n_freqs + i] = make_float2(cosf(angle) * scale, sinf(angle) * scale);
    }
};
} // namespace

enum status cuda_gather(struct gpu_stream *s, struct view out, struct view x, const uint32_t *rows,
                        uint32_t n_rows, uint32_t dim, struct error *err)
{
    const gather_chunk f = {out_of(out), in_of(x), rows, dim};
    return run(s, f, n_rows, n_chunks(dim), "gather", err);
}

enum status cuda_clear(struct gpu_stream *s, struct view x, uint32_t n_rows, uint32_t dim,
                       struct error *err)
{
    const clear_chunk f = {out_of(x), dim};
    return run(s, f, n_rows, n_chunks(dim), "clear", err);
}

enum status cuda_add(struct gpu_stream *s, const struct add_params *p, struct error *err)
{
    const add_chunk f = {out_of(p->x), in_of(p->y), p->dim};
    return run(s, f, p->n_rows, n_chunks(p->dim), "add", err);
}

template <enum activation ACT>
static enum status gated(struct gpu_stream *s, const struct gated_params *p, struct error *err)
{
    const gated_chunk<ACT> f = {out_of(p->out), in_of(p->gate), in_of(p->up), p->dim, p->limit};
    return run(s, f, p->n_rows, n_chunks(p->dim), "gated", err);
}

enum status cuda_gated(struct gpu_stream *s, const struct gated_params *p, struct error *err)
{
    return p->act == ACT_SILU        ? gated<ACT_SILU>(s, p, err)
           : p->act == ACT_GELU_TANH ? gated<ACT_GELU_TANH>(s, p, err)
                                     : gated<ACT_SWIGLU_LIMITED>(s, p, err);
}

enum status cuda_gate_rows(struct gpu_stream *s, struct view x, uint32_t n_rows, uint32_t dim,
                           struct view gate, struct error *err)
{
    const gate_rows_chunk f = {out_of(x), in_of(gate), dim};
    return run(s, f, n_rows, n_chunks(dim), "gate_rows", err);
}

enum status cuda_copy_heads(struct gpu_stream *s, const struct copy_heads_params *p,
                            struct error *err)
{
    copy_heads_chunk f = {in_of(p->from), out_of(p->to), p->from_stride,
                          p->to_stride,   p->n,          n_chunks(p->n)};
    f.from.vector = f.from.vector && p->from_stride % CHUNK == 0;
    f.to.vector = f.to.vector && p->to_stride % CHUNK == 0;
    return run(s, f, p->n_rows, p->n_heads * f.per_head, "copy_heads", err);
}

enum status cuda_rope(struct gpu_stream *s, const struct rope_params *p, struct error *err)
{
    const uint32_t half = p->n_rot / 2;
    rope_chunk f = {out_of(p->x),   reinterpret_cast<const float2 *>(p->cos_sin),
                    p->head_dim,    half,
                    n_chunks(half), p->interleaved};
    f.x.vector = f.x.vector && p->head_dim % CHUNK == 0 && (p->interleaved || half % CHUNK == 0);
    return run(s, f, p->n_rows, p->n_heads * f.per_head, "rope", err);
}

enum status cuda_rope_table(struct gpu_stream *s, const struct rope_table_params *p,
                            struct error *err)
{
    const rope_table_pair f = {p->positions, p->inv_freqs, reinterpret_cast<float2 *>(p->out),
                               p->n_freqs, p->scale};
    return run(s, f, p->n_rows, p->n_freqs, "rope_table", err);
}
