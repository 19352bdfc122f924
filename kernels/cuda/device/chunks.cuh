#pragma once
/* Loads and stores chunks. A chunk is 8 neighbouring elements of a bfloat16 row, 16 bytes, which
 * a thread loads and stores at once. VECTOR (or vector) means that rows begin at multiples of 16
 * bytes. Otherwise, and at a row's end, elements are read one by one, with the same values. */
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

constexpr uint32_t CHUNK = 8;

/* Reads elements first .. first + 7 of a unit, two to a word; elements from dim on are zero. */
template <bool VECTOR>
__device__ __forceinline__ uint4 chunk_load(const uint16_t *unit, uint32_t first, uint32_t dim)
{
    if (VECTOR && first + CHUNK <= dim)
        return *reinterpret_cast<const uint4 *>(unit + first);
    uint32_t e[CHUNK];
#pragma unroll
    for (uint32_t i = 0; i < CHUNK; i++)
        e[i] = first + i < dim ? unit[first + i] : 0u;
    return make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16);
}

template <bool VECTOR>
__device__ __forceinline__ void chunk_store(uint16_t *unit, uint32_t first, uint32_t dim,
                                            uint4 chunk)
{
    if (VECTOR && first + CHUNK <= dim) {
        *reinterpret_cast<uint4 *>(unit + first) = chunk;
        return;
    }
    const uint32_t words[CHUNK / 2] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (uint32_t i = 0; i < CHUNK; i++)
        if (first + i < dim)
            unit[first + i] = (uint16_t)(words[i / 2] >> (i % 2 * 16));
}

template <bool VECTOR>
__device__ __forceinline__ void weights_load(const float *w, uint32_t first, uint32_t dim,
                                             float *out)
{
    if (VECTOR && first + CHUNK <= dim) {
        const float4 lo = *reinterpret_cast<const float4 *>(w + first);
        const float4 hi = *reinterpret_cast<const float4 *>(w + first + 4);
        out[0] = lo.x, out[1] = lo.y, out[2] = lo.z, out[3] = lo.w;
        out[4] = hi.x, out[5] = hi.y, out[6] = hi.z, out[7] = hi.w;
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < CHUNK; i++)
        out[i] = first + i < dim ? w[first + i] : 0.0f;
}

__device__ __forceinline__ void chunk_unpack(uint4 chunk, float *out)
{
    const uint32_t words[CHUNK / 2] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (uint32_t i = 0; i < CHUNK / 2; i++) {
        out[2 * i] = __uint_as_float(words[i] << 16);
        out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
}

/* Rounds a chunk's floats to the nearest bfloat16, ties to even. */
__device__ __forceinline__ uint4 chunk_pack(const float *v)
{
    uint32_t words[CHUNK / 2];
#pragma unroll
    for (uint32_t i = 0; i < CHUNK / 2; i++) {
        const uint32_t lo = __bfloat16_as_ushort(__float2bfloat16_rn(v[2 * i]));
        const uint32_t hi = __bfloat16_as_ushort(__float2bfloat16_rn(v[2 * i + 1]));
        words[i] = lo | hi << 16;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ uint4 chunk_add(uint4 a, uint4 b)
{
    float x[CHUNK], y[CHUNK];
    chunk_unpack(a, x);
    chunk_unpack(b, y);
#pragma unroll
    for (uint32_t i = 0; i < CHUNK; i++)
        x[i] += y[i];
    return chunk_pack(x);
}

/* Reads a chunk; alignment is known only at run time. */
__device__ __forceinline__ void chunk_read(bool vector, const uint16_t *row, uint32_t first,
                                           uint32_t dim, float *out)
{
    chunk_unpack(vector ? chunk_load<true>(row, first, dim) : chunk_load<false>(row, first, dim),
                 out);
}

__device__ __forceinline__ void chunk_write(bool vector, uint16_t *row, uint32_t first,
                                            uint32_t dim, const float *v)
{
    if (vector)
        chunk_store<true>(row, first, dim, chunk_pack(v));
    else
        chunk_store<false>(row, first, dim, chunk_pack(v));
}

static inline bool chunk_is_aligned(const void *ptr, uint32_t stride)
{
    return (uintptr_t)ptr % 16 == 0 && stride % CHUNK == 0;
}
