/* Writes the keys and values of a pass's rows into their blocks, with or without the ropes of Q
 * and K in the same launch. backend/attention.c calls this file. The stored bits are those of
 * the separate operators, and equal those of a CPU for the same inputs.
 *
 * Movement of bytes: a warp processes one head of a row. Lanes load two neighbouring elements
 * each (128 bytes for the warp). For a rope of two halves, they also load the two elements that
 * these are rotated with. A head of Q is written back from the registers. A key or value is
 * first stored in shared memory, because its largest magnitude must be known before the first
 * code. It is also written 8 elements at a time. */
#include "kernels/cuda/attention/store.cuh"
#include "kernels/cuda/device/launch.cuh"

#include "kernels/kv_layout.h"

namespace
{
constexpr uint32_t WARPS = 8, MAX_DIM = 576;
/* vectors with a smaller largest magnitude are stored as zeros, as on a CPU */
constexpr float LEAST = 0x1p-100f;

struct rope_args {
    uint16_t *x;
    uint32_t stride, n_heads, head_dim, n_rot;
    bool interleaved;
    const float *cos_sin;
    uint32_t first; /* element of a key at which the rope begins */
};

struct kv_args {
    rope_args q, k; /* n_rot 0: there is no rope */
    const uint16_t *keys, *values;
    uint32_t keys_stride, values_stride;
    const kv_row *rows;
    uint32_t n_rows, n_heads, n_items; /* n_items: number of heads of Q, K and V of a row */
    uint8_t *k_base, *v_base, *k_scales, *v_scales;
    uint64_t block_stride;
    dtype type;
    uint32_t head_dim, block_tokens, elem_bytes, n_scales, scale_end;
    bool is_vector; /* tokens begin at multiples of 8 elements and are aligned to that size */
};

__device__ inline float bf16_value(uint16_t v)
{
    return __uint_as_float((uint32_t)v << 16);
}

__device__ inline float bf16_rounded(float v)
{
    return bf16_value(__bfloat16_as_ushort(__float2bfloat16_rn(v)));
}

/* Loads two elements. Elements that are aligned to 4 bytes need only one load. */
__device__ inline float2 pair_load(const uint16_t *x)
{
    uint32_t v;
    if ((reinterpret_cast<uintptr_t>(x) & 3u) == 0)
        v = *reinterpret_cast<const uint32_t *>(x);
    else
        v = x[0] | (uint32_t)x[1] << 16;
    return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u));
}

/* Finds the elements *lo and *hi of a vector that are pair i of the rope. */
__device__ inline void pair_places(const rope_args &r, uint32_t i, uint32_t *lo, uint32_t *hi)
{
    *lo = r.interleaved ? 2 * i : i;
    *hi = r.interleaved ? 2 * i + 1 : i + r.n_rot / 2;
}

/* Returns a rotated pair, rounded to bfloat16, so that the fused operator gives the bits of a
 * rope that is stored first. */
__device__ inline float2 pair_turned(const rope_args &r, size_t row, uint32_t i, float x, float y)
{
    const float *cs = r.cos_sin + (row * (r.n_rot / 2) + i) * 2;
    const float c = cs[0], s = cs[1];
    return make_float2(bf16_rounded(x * c - y * s), bf16_rounded(y * c + x * s));
}

/* Rotates a head of Q in place. One lane has both elements of a pair. */
__device__ inline void query_rope(const rope_args &r, size_t row, uint32_t head)
{
    uint16_t *x = r.x + row * r.stride + (size_t)head * r.head_dim;
    const uint32_t lane = threadIdx.x % 32, half = r.n_rot / 2;
    if (r.interleaved) {
        for (uint32_t i = lane; i < half; i += 32) {
            const float2 v = pair_load(x + 2 * i);
            const float2 turned = pair_turned(r, row, i, v.x, v.y);
            pair_store(x, 2 * i, r.n_rot, turned.x, turned.y);
        }
        return;
    }
    /* a lane rotates two pairs; the last pair of an odd half is alone */
    for (uint32_t i = 2 * lane; i < half; i += 64) {
        if (i + 1 == half) {
            const float2 t = pair_turned(r, row, i, bf16_value(x[i]), bf16_value(x[i + half]));
            x[i] = (uint16_t)(__float_as_uint(t.x) >> 16);
            x[i + half] = (uint16_t)(__float_as_uint(t.y) >> 16);
            continue;
        }
        const float2 lo = pair_load(x + i), hi = pair_load(x + half + i);
        const float2 a = pair_turned(r, row, i, lo.x, hi.x);
        const float2 b = pair_turned(r, row, i + 1, lo.y, hi.y);
        pair_store(x, i, half, a.x, b.x);
        pair_store(x + half, i, half, a.y, b.y);
    }
}

/* Returns the scale for `largest`, the bits of a largest magnitude, and the inverse of that
 * scale, as kv_store_impl.h does. */
__device__ inline float scale_of(uint32_t largest, float largest_code, float *inverse)
{
    constexpr uint32_t INFINITE = 0x7f800000u;
    *inverse = 0.0f;
    if (largest > INFINITE)
        return __uint_as_float(0x7fc00000u);
    const float v = __uint_as_float(largest == INFINITE ? INFINITE - 1 : largest);
    if (v < LEAST)
        return 0.0f;
    *inverse = largest_code / v;
    return v / largest_code;
}

/* Rounds |v| <= 448 to the nearest even code. Below 2^-6, codes are multiples of 2^-9. */
__device__ inline uint32_t e4m3_code(float v)
{
    const uint32_t bits = __float_as_uint(v), abs = bits & 0x7fffffffu;
    const uint32_t normal = ((abs + 0x7ffffu + (abs >> 20 & 1u)) >> 20) - (120u << 3);
    const uint32_t small =
        __float_as_uint(__uint_as_float(abs) + 0x1p14f) - __float_as_uint(0x1p14f);
    return (bits >> 24 & 0x80u) | (abs < 0x3c800000u ? small : normal);
}

__device__ inline uint32_t code_of(dtype type, float v, float inverse)
{
    const float largest = type == DTYPE_I8 ? 127.0f : 448.0f;
    v *= inverse;
    v = v < largest ? v : largest;
    v = v > -largest ? v : -largest;
    return type == DTYPE_I8 ? __float_as_uint(v + 0x1.8p23f) & 0xffu : e4m3_code(v);
}

/* Returns the bits of v as a half. A number beyond the range becomes the largest half. A NaN
 * stays NaN. */
__device__ inline uint32_t f16_bits(float v)
{
    v = v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v;
    return __half_as_ushort(__float2half_rn(v));
}

__device__ inline void element_store(const kv_args &a, uint8_t *token, uint32_t i, float v,
                                     float inverse)
{
    switch (a.type) {
    case DTYPE_F16:
        reinterpret_cast<uint16_t *>(token)[i] = (uint16_t)f16_bits(v);
        break;
    case DTYPE_BF16:
        reinterpret_cast<uint16_t *>(token)[i] = (uint16_t)(__float_as_uint(v) >> 16);
        break;
    case DTYPE_F8_E4M3:
    case DTYPE_I8:
        token[i] = (uint8_t)code_of(a.type, v, inverse);
        break;
    default:
        reinterpret_cast<float *>(token)[i] = v;
    }
}

/* Stores elements first .. first + 7 as bfloat16 or as codes. */
__device__ inline void chunk_store(const kv_args &a, uint8_t *token, uint32_t first, const float *v,
                                   float inverse)
{
    uint32_t words[4];
    if (a.type == DTYPE_BF16) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            words[i] = pack_bf16(v[2 * i], v[2 * i + 1]);
        *reinterpret_cast<uint4 *>(token + first * 2) =
            make_uint4(words[0], words[1], words[2], words[3]);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        words[i] = code_of(a.type, v[4 * i], inverse) |
                   code_of(a.type, v[4 * i + 1], inverse) << 8 |
                   code_of(a.type, v[4 * i + 2], inverse) << 16 |
                   code_of(a.type, v[4 * i + 3], inverse) << 24;
    *reinterpret_cast<uint2 *>(token + first) = make_uint2(words[0], words[1]);
}

/* Stores elements begin .. end of v, which share one scale. */
__device__ inline void part_store(const kv_args &a, uint8_t *token, float *scale, const float *v,
                                  uint32_t begin, uint32_t end)
{
    const uint32_t lane = threadIdx.x % 32;
    float inverse = 1.0f;
    if (scale) {
        uint32_t largest = 0;
        for (uint32_t i = begin + lane; i < end; i += 32)
            largest = max(largest, __float_as_uint(v[i]) & 0x7fffffffu);
#pragma unroll
        for (uint32_t step = 16; step > 0; step /= 2)
            largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, step));
        const float s = scale_of(largest, a.type == DTYPE_I8 ? 127.0f : 448.0f, &inverse);
        if (lane == 0)
            *scale = s;
    }
    const bool by_chunks = a.is_vector && begin % 8 == 0 && end % 8 == 0 &&
                           (a.type == DTYPE_BF16 || a.elem_bytes == 1);
    if (by_chunks) {
        for (uint32_t i = begin + lane * 8; i < end; i += 32 * 8)
            chunk_store(a, token, i, v + i, inverse);
        return;
    }
    for (uint32_t i = begin + lane; i < end; i += 32)
        element_store(a, token, i, v[i], inverse);
}

/* Loads a head's key or value into v as floats, rotated by the rope. */
__device__ inline void vector_load(const kv_args &a, size_t row, uint32_t head, bool is_value,
                                   float *v)
{
    const uint16_t *x =
        (is_value ? a.values + row * a.values_stride : a.keys + row * a.keys_stride) +
        (size_t)head * a.head_dim;
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = lane * 2; i < a.head_dim; i += 64)
        *reinterpret_cast<float2 *>(v + i) = pair_load(x + i);
    __syncwarp();
    if (is_value || a.k.n_rot == 0)
        return;
    for (uint32_t i = lane; i < a.k.n_rot / 2; i += 32) {
        uint32_t lo, hi;
        pair_places(a.k, i, &lo, &hi);
        float *x_lo = v + a.k.first + lo, *x_hi = v + a.k.first + hi;
        const float2 turned = pair_turned(a.k, row, i, *x_lo, *x_hi);
        *x_lo = turned.x, *x_hi = turned.y;
    }
    __syncwarp();
}

__global__ __launch_bounds__(32 * WARPS) void kv_kernel(const kv_args a)
{
    __shared__ __align__(16) float vectors[WARPS][MAX_DIM];
    const uint32_t i = blockIdx.x * WARPS + threadIdx.x / 32;
    const uint32_t row = i / a.n_items;
    uint32_t item = i % a.n_items;
    dependency_launch();
    dependency_wait();
    if (row >= a.n_rows)
        return;
    const kv_row r = a.rows[row];
    if (r.position == KV_ROW_NONE)
        return;
    if (item < a.q.n_heads) {
        query_rope(a.q, row, item);
        return;
    }
    item -= a.q.n_heads;
    const bool is_value = item >= a.n_heads;
    const uint32_t head = is_value ? item - a.n_heads : item;
    float *v = vectors[threadIdx.x / 32];
    vector_load(a, row, head, is_value, v);
    const uint32_t i_block = r.position / a.block_tokens;
    const uint64_t block = r.blocks[i_block - r.n_dropped] * a.block_stride;
    const uint32_t at = r.position - i_block * a.block_tokens;
    uint8_t *token = (is_value ? a.v_base : a.k_base) + block +
                     (size_t)(head * a.block_tokens + at) * a.head_dim * a.elem_bytes;
    if (!a.k_scales) {
        part_store(a, token, nullptr, v, 0, a.head_dim);
        return;
    }
    float *scale = reinterpret_cast<float *>((is_value ? a.v_scales : a.k_scales) + block) +
                   (size_t)head * a.n_scales * a.block_tokens + at;
    part_store(a, token, scale, v, 0, a.scale_end);
    if (a.scale_end < a.head_dim)
        part_store(a, token, scale + a.block_tokens, v, a.scale_end, a.head_dim);
}

rope_args rope_args_of(const struct rope_params *p)
{
    rope_args r = {};
    r.x = static_cast<uint16_t *>(p->x.data), r.stride = p->x.stride;
    r.n_heads = p->n_heads, r.head_dim = p->head_dim, r.n_rot = p->n_rot;
    r.interleaved = p->interleaved, r.cos_sin = p->cos_sin;
    return r;
}

kv_args kv_args_of(const struct kv_write_params *p)
{
    const struct kv_cache *kv = p->kv;
    const bool latent = kv_is_latent(kv);
    kv_args a = {};
    a.keys = static_cast<const uint16_t *>(p->k.data), a.keys_stride = p->k.stride;
    a.values = static_cast<const uint16_t *>(p->v.data), a.values_stride = p->v.stride;
    a.rows = p->rows, a.n_rows = p->n_rows, a.n_heads = p->n_heads;
    a.n_items = p->n_heads * (latent ? 1 : 2);
    a.k_base = static_cast<uint8_t *>(kv->k), a.v_base = static_cast<uint8_t *>(kv->v);
    a.k_scales = reinterpret_cast<uint8_t *>(kv->k_scales);
    a.v_scales = reinterpret_cast<uint8_t *>(kv->v_scales);
    a.block_stride = kv->block_stride, a.type = kv->dtype;
    a.head_dim = kv->head_dim, a.block_tokens = kv->block_tokens;
    a.elem_bytes = (uint32_t)kv_elem_bytes(kv->dtype);
    a.n_scales = latent ? 2 : 1, a.scale_end = kv_part_end(kv);
    const uint32_t align = 8 * a.elem_bytes;
    a.is_vector = kv->head_dim % 8 == 0 && ((uintptr_t)kv->k | (uintptr_t)kv->v) % align == 0 &&
                  kv->block_stride % align == 0;
    return a;
}

enum status enqueue(struct gpu_stream *s, const kv_args &a, const char *name, struct error *err)
{
    const uint64_t n_warps = (uint64_t)a.n_rows * a.n_items;
    if (n_warps == 0)
        return STATUS_OK;
    if (a.head_dim > MAX_DIM || n_warps > INT32_MAX)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "%s: %u rows with heads of %u dimensions are not supported: a head may have at most %u",
            name, a.n_rows, a.head_dim, MAX_DIM);
    TRY(gpu_enter(s->device, err));
    const dim3 grid((uint32_t)((n_warps + WARPS - 1) / WARPS));
    return gpu_check(launch_kernel(s, kv_kernel, grid, dim3(32 * WARPS), 0, a), name, err);
}

/* Returns the number of elements from the start of the keys to the start of the rope. Returns -1
 * when the rope's vectors are not part of the keys. */
int64_t rope_offset(const struct rope_params *k, const struct kv_write_params *p)
{
    const intptr_t bytes = (intptr_t)((uintptr_t)k->x.data - (uintptr_t)p->k.data);
    const bool same_heads =
        k->n_heads == p->n_heads && (k->n_heads == 1 || k->head_dim == p->kv->head_dim);
    if (!same_heads || k->n_rows != p->n_rows || k->x.stride != p->k.stride || bytes < 0 ||
        bytes / 2 + k->n_rot > p->kv->head_dim)
        return -1;
    return bytes / 2;
}
} // namespace

bool cuda_rope_kv_fits(const struct rope_params *k, const struct kv_write_params *p)
{
    return rope_offset(k, p) >= 0;
}

enum status cuda_kv_write(struct gpu_stream *s, const struct kv_write_params *p, struct error *err)
{
    return enqueue(s, kv_args_of(p), "kv_write", err);
}

enum status cuda_rope_kv(struct gpu_stream *s, const struct rope_params *q,
                         const struct rope_params *k, const struct kv_write_params *p,
                         struct error *err)
{
    const int64_t first = rope_offset(k, p);
    kv_args a = kv_args_of(p);
    if (first < 0 || q->n_rows != p->n_rows)
        return error_set(
            err, STATUS_INTERNAL,
            "rope_kv: %u heads of %u dimensions do not fit into %u keys of %u dimensions",
            k->n_heads, k->n_rot, p->n_heads, p->kv->head_dim);
    a.q = rope_args_of(q);
    a.k = rope_args_of(k);
    a.k.first = (uint32_t)first;
    a.n_items += q->n_heads;
    return enqueue(s, a, "rope_kv", err);
}
