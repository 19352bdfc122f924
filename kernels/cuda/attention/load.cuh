#pragma once
/* Loads keys, values and queries into shared memory. Plain bfloat16 is copied without registers.
 * Data of another type, or data that is not in whole 16 bytes, is converted while it is loaded. */
#include "kernels/cuda/attention/args.cuh"

/* `token_place` is the place of a token in the cache. It is looked up once for all chunks of the
 * token, one unit ahead. */
struct token_place {
    uint32_t block, at;
};

__device__ inline token_place token_find(const attention_args &a, const attention_task &t,
                                         uint32_t key)
{
    token_place p = {0, 0};
    if (key < t.first_key || key > t.last_key)
        return p;
    const uint32_t i = a.block_shift >= 0 ? key >> a.block_shift : key / a.block_tokens;
    p.block = t.blocks[i - t.n_dropped];
    p.at = key - i * a.block_tokens;
    return p;
}

/* Returns the address of the token's key or value; `base` is the address in block 0. */
__device__ inline const uint8_t *token_at(const attention_args &a, const uint8_t *base,
                                          const attention_task &t, const token_place &p)
{
    return base + p.block * a.block_stride +
           (size_t)(t.i_kv_head * a.block_tokens + p.at) * a.head_dim * a.elem_bytes;
}

__device__ inline const float *scale_at(const attention_args &a, const uint8_t *base,
                                        const attention_task &t, const token_place &p)
{
    return reinterpret_cast<const float *>(base + p.block * a.block_stride) +
           (size_t)t.i_kv_head * a.n_scales * a.block_tokens + p.at;
}

/* Converts a code of OCP FP8: interprets its bits as a float and corrects the exponent by one
 * product. 0x7f is a NaN. */
__device__ inline float e4m3_value(uint32_t code)
{
    const uint32_t abs = code & 0x7fu, sign = (code & 0x80u) << 24;
    const float v = __uint_as_float(sign | abs << 20) * 0x1p120f;
    return abs == 0x7fu ? __uint_as_float(0x7fc00000u) : v;
}

/* Returns element i of a token of any type. */
__device__ inline float token_element(const attention_args &a, const uint8_t *token, uint32_t i)
{
    switch (a.type) {
    case DTYPE_F16:
        return __half2float(__ushort_as_half(reinterpret_cast<const uint16_t *>(token)[i]));
    case DTYPE_BF16:
        return __uint_as_float((uint32_t) reinterpret_cast<const uint16_t *>(token)[i] << 16);
    case DTYPE_F8_E4M3:
        return e4m3_value(token[i]);
    case DTYPE_I8:
        return (float)(int8_t)token[i];
    default:
        return reinterpret_cast<const float *>(token)[i];
    }
}

/* Returns elements first .. first + 7 of a token as bfloat16. Elements below v_dim are
 * multiplied by the first scale, the others by the second. Elements from head_dim on are zeros. */
__device__ inline uint4 token_chunk(const attention_args &a, const uint8_t *token, uint32_t first,
                                    float scale, float rest_scale)
{
    float v[8];
    if (a.is_vector && a.elem_bytes == 1 && first < a.head_dim) {
        const uint2 codes = *reinterpret_cast<const uint2 *>(token + first);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t code = (i < 4 ? codes.x : codes.y) >> (i % 4 * 8) & 0xffu;
            v[i] = (a.type == DTYPE_I8 ? (float)(int8_t)code : e4m3_value(code));
        }
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            v[i] = first + i < a.head_dim ? token_element(a, token, first + i) : 0.0f;
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        v[i] *= first + i < a.v_dim ? scale : rest_scale;
    return make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
                      pack_bf16(v[6], v[7]));
}

/* Loads BN tokens from `key` on into rows of LD elements. Neighbouring threads load neighbouring
 * 16 bytes of a token. Tokens that no row of the block sees, and elements beyond head_dim,
 * become zeros. Data that is not plain bfloat16 is converted. The two scales of a latent are
 * applied here; other scales are applied to the scores and weights. */
template <uint32_t D, uint32_t BN, uint32_t THREADS>
__device__ inline void tokens_load(const attention_args &a, const attention_task &t,
                                   const uint8_t *base, const uint8_t *scales, uint32_t key,
                                   const token_place *places, uint16_t *to)
{
    constexpr uint32_t CHUNKS = D / 8, LD = D + 8;
    static_assert(BN * CHUNKS % THREADS == 0, "every thread has as many chunks");
    if (a.is_plain) {
#pragma unroll
        for (uint32_t j = 0; j < BN * CHUNKS / THREADS; j++) {
            const uint32_t i = j * THREADS + threadIdx.x, row = i / CHUNKS, first = i % CHUNKS * 8;
            const bool valid =
                key + row >= t.first_key && key + row <= t.last_key && first < a.head_dim;
            const uint8_t *token = token_at(a, base, t, places[row]);
            cp_async_16(to + row * LD + first, valid ? token + first * 2 : base, valid);
        }
        return;
    }
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < BN * CHUNKS; i += THREADS) {
        const uint32_t row = i / CHUNKS, first = i % CHUNKS * 8;
        uint4 chunk = make_uint4(0, 0, 0, 0);
        if (key + row >= t.first_key && key + row <= t.last_key && first < a.head_dim) {
            const uint8_t *token = token_at(a, base, t, places[row]);
            float scale = 1.0f, rest_scale = 1.0f;
            if (a.is_latent && scales) {
                const float *both = scale_at(a, scales, t, places[row]);
                scale = both[0], rest_scale = both[a.block_tokens];
            }
            chunk = token_chunk(a, token, first, scale, rest_scale);
        }
        *reinterpret_cast<uint4 *>(to + row * LD + first) = chunk;
    }
}

/* Loads Q of the block's packed rows into rows of LD elements, with zeros beyond the last row
 * and beyond head_dim. */
template <uint32_t D, uint32_t BM, uint32_t THREADS>
__device__ inline void queries_load(const attention_args &a, const attention_task &t, uint16_t *to)
{
    constexpr uint32_t CHUNKS = D / 8, LD = D + 8;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < BM * CHUNKS; i += THREADS) {
        const uint32_t m = i / CHUNKS, first = i % CHUNKS * 8, packed = t.m_first + m;
        uint4 chunk = make_uint4(0, 0, 0, 0);
        if (m < t.n_m && first < a.head_dim) {
            const uint16_t *q = a.q + (size_t)(t.first_row + packed / t.n_heads) * a.q_stride +
                                (size_t)(t.head + packed % t.n_heads) * a.head_dim + first;
            if (a.q_vector) {
                chunk = *reinterpret_cast<const uint4 *>(q);
            } else {
                uint32_t e[8];
                for (uint32_t k = 0; k < 8; k++)
                    e[k] = first + k < a.head_dim ? q[k] : 0u;
                chunk = make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16,
                                   e[6] | e[7] << 16);
            }
        }
        *reinterpret_cast<uint4 *>(to + m * LD + first) = chunk;
    }
}
