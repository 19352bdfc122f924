#pragma once
/* Loads 1-byte codes into shared memory. The codes are copied unchanged and asynchronously two
 * units ahead. They are converted to bfloat16 in shared memory one unit ahead, while the tensor
 * cores work on the current unit. Codes are exact in bfloat16. The scales of keys and values are
 * applied to the scores and weights. A latent's tokens have two scales, which are applied here. */
#include "kernels/cuda/attention/load.cuh"
#include "kernels/cuda/weights/formats.cuh"

/* Copies BN tokens from `key` on into rows of D bytes. Tokens that no row of the block sees, and
 * elements beyond head_dim, become zeros. */
template <uint32_t D, uint32_t BN, uint32_t THREADS>
__device__ inline void codes_load(const attention_args &a, const attention_task &t,
                                  const uint8_t *base, uint32_t key, const token_place *places,
                                  uint8_t *to)
{
    constexpr uint32_t CHUNKS = D / 16;
#pragma unroll
    for (uint32_t j = 0; j < (BN * CHUNKS + THREADS - 1) / THREADS; j++) {
        const uint32_t i = j * THREADS + threadIdx.x, row = i / CHUNKS, first = i % CHUNKS * 16;
        if (BN * CHUNKS % THREADS != 0 && i >= BN * CHUNKS)
            break;
        const bool valid =
            key + row >= t.first_key && key + row <= t.last_key && first < a.head_dim;
        const uint8_t *token = token_at(a, base, t, places[row]);
        cp_async_16(to + row * D + first, valid ? token + first : base, valid);
    }
}

__device__ inline uint32_t codes_pair(dtype type, uint32_t v)
{
    return type == DTYPE_I8 ? weights_pair<GPU_I8>(v, 0) : weights_pair<GPU_F8>(v, 0);
}

__device__ inline uint32_t pair_scaled(uint32_t pair, float scale)
{
    return pack_bf16(__uint_as_float(pair << 16) * scale,
                     __uint_as_float(pair & 0xffff0000u) * scale);
}

/* Converts rows of D codes to rows of D + 8 bfloat16. For a latent, `scales` has two scales for
 * each token; otherwise it is NULL. */
template <uint32_t D, uint32_t BN, uint32_t THREADS>
__device__ inline void codes_convert(const attention_args &a, const uint8_t *from,
                                     const float2 *scales, uint16_t *to)
{
    constexpr uint32_t CHUNKS = D / 8, LD = D + 8;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < BN * CHUNKS; i += THREADS) {
        const uint32_t row = i / CHUNKS, first = i % CHUNKS * 8;
        const uint2 codes = *reinterpret_cast<const uint2 *>(from + i * 8);
        uint32_t words[4];
#pragma unroll
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t four = k ? codes.y : codes.x;
            const uint32_t even = codes_pair(a.type, four), odd = codes_pair(a.type, four >> 8);
            words[2 * k] = __byte_perm(even, odd, 0x5410);
            words[2 * k + 1] = __byte_perm(even, odd, 0x7632);
        }
        if (scales) {
            const float scale = first < a.v_dim ? scales[row].x : scales[row].y;
#pragma unroll
            for (uint32_t k = 0; k < 4; k++)
                words[k] = pair_scaled(words[k], scale);
        }
        *reinterpret_cast<uint4 *>(to + row * LD + first) =
            make_uint4(words[0], words[1], words[2], words[3]);
    }
}

/* Returns the scales of one token: x of the key and y of the value, or both scales of a latent.
 * The scales are loaded when the copy of the codes begins, and stored when they are needed. */
__device__ inline float2 scales_fetch(const attention_args &a, const attention_task &t,
                                      uint32_t key, const token_place &place)
{
    float2 v = make_float2(0.0f, 0.0f);
    if (!a.k_scales || key < t.first_key || key > t.last_key)
        return v;
    const float *of_key = scale_at(a, a.k_scales, t, place);
    v.x = of_key[0];
    v.y = a.is_latent ? of_key[a.block_tokens] : *scale_at(a, a.v_scales, t, place);
    return v;
}
