#pragma once
/* Implements the end of a grouped product: applies bias, activation or an adapter's scale to
 * sums in shared memory, and stores them in the place's row. */
#include "kernels/cuda/moe/grouped.cuh"

__device__ inline float grouped_activation(float g, float u, enum activation act, float limit)
{
    if (act == ACT_SILU)
        return g / (1.0f + expf(-g)) * u;
    if (act == ACT_GELU_TANH)
        return 0.5f * g * (1.0f + tanhf(0.7978845608028654f * (g + 0.044715f * g * g * g))) * u;
    g = g < limit ? g : limit;
    u = u < -limit ? -limit : u < limit ? u : limit;
    return g / (1.0f + expf(-1.702f * g)) * (u + 1.0f);
}

/* `grouped_sums` holds the sums of a block: sums[row * stride + output], in n_parts pieces
 * part_stride apart that are added in order. In a gated result, the first n_outputs columns
 * belong to the first matrix and the remaining columns to the second. Rows are those of the
 * tile; outputs begin at `first`. */
struct grouped_sums {
    const float *sums;
    uint32_t stride, n_parts, part_stride;
    uint32_t first, n_outputs;
};

__device__ inline float grouped_sum(const struct grouped_sums &s, uint32_t row, uint32_t column)
{
    float v = s.sums[row * s.stride + column];
    for (uint32_t i = 1; i < s.n_parts; i++)
        v += s.sums[i * s.part_stride + row * s.stride + column];
    return v;
}

__device__ inline float grouped_scale(const struct grouped_args &a, const struct grouped_matrix *m)
{
    return *reinterpret_cast<const float *>(reinterpret_cast<const char *>(m) + a.scale);
}

/* Stores one element. */
__device__ inline void grouped_store(const struct grouped_args &a, const struct grouped_tile &t,
                                     const struct grouped_matrix *m, const struct grouped_sums &s,
                                     uint32_t row, uint32_t column)
{
    const uint32_t output = s.first + column;
    const bool is_real = output < m->w.n;
    if (!is_real && (!a.fills || output >= (m->w.n + 15) / 16 * 16))
        return;
    const struct grouped_out &to = a.outs[blockIdx.z];
    const size_t at = (size_t)grouped_row(a.out_rows, t.first + row) * to.stride +
                      (size_t)t.group * a.out_group_stride + output;
    uint16_t *half = static_cast<uint16_t *>(to.data) + at;
    float v = grouped_sum(s, row, column);
    v += is_real && m->bias ? m->bias[output] : 0.0f;
    if (a.result == GROUPED_FLOAT || a.result == GROUPED_ADD_FLOAT) {
        float *out = static_cast<float *>(to.data) + at;
        *out = a.result == GROUPED_FLOAT ? v : fmaf(v, grouped_scale(a, m), *out);
        return;
    }
    if (a.result == GROUPED_GATED) {
        const struct grouped_matrix *second = grouped_second(a, m);
        float u = grouped_sum(s, row, s.n_outputs + column);
        u += is_real && second->bias ? second->bias[output] : 0.0f;
        v = is_real ? grouped_activation(v, u, a.act, a.limit) : 0.0f;
    } else if (a.result == GROUPED_ADD) {
        v = fmaf(v, grouped_scale(a, m), __uint_as_float((uint32_t)*half << 16));
    }
    *half = __bfloat16_as_ushort(__float2bfloat16_rn(v));
}

/* Stores all elements. All threads of the block call it, after a barrier; n_threads is a
 * multiple of s.n_outputs. Neighbouring threads write neighbouring outputs. */
__device__ inline void grouped_finish(const struct grouped_args &a, const struct grouped_tile &t,
                                      const struct grouped_matrix *m, const struct grouped_sums &s,
                                      uint32_t thread, uint32_t n_threads)
{
    const uint32_t column = thread % s.n_outputs, step = n_threads / s.n_outputs;
    for (uint32_t row = thread / s.n_outputs; row < t.n; row += step)
        grouped_store(a, t, m, s, row, column);
}
