/* Reads rows of packed weights by id, and columns of activations by order. Only a few rows are
 * copied, so a launch costs more time than the bytes. A block has one row, and a thread has
 * eight of its inputs. A thread writes 16 bytes at once. A thread reads BF16 in the same way. It
 * reads codes as four pairs that are 16 bytes apart. */
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/weights/formats.cuh"

extern "C" {
#include "kernels/cuda/linear/abi.h"
}

namespace
{
constexpr uint32_t THREADS = 256, CHUNK = 8;

struct embed_args {
    const uint8_t *codes, *scales;
    const uint32_t *ids;
    uint16_t *out;
    uint32_t tile_bytes, n, k, group, first, out_stride, is_aligned;
    float scale;
};

__device__ __forceinline__ void store_chunk(uint16_t *to, uint32_t n, bool is_aligned, uint4 v)
{
    if (is_aligned && n >= CHUNK) {
        *reinterpret_cast<uint4 *>(to) = v;
        return;
    }
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (uint32_t i = 0; i < CHUNK; i++)
        if (i < n)
            to[i] = (uint16_t)(words[i / 2] >> i % 2 * 16);
}

__device__ __forceinline__ uint32_t scaled(uint32_t pair, float scale, float offset, float factor)
{
    const float low = fmaf(scale, __uint_as_float(pair << 16), offset);
    const float high = fmaf(scale, __uint_as_float(pair & 0xffff0000u), offset);
    return bf16x2_of(low * factor, high * factor);
}

/* Returns inputs k .. k + 7 of row `row` of the matrix; k is a multiple of 8. */
template <enum gpu_format F>
__device__ __forceinline__ uint4 row_chunk(const embed_args &a, uint32_t row, uint32_t k)
{
    using W = weights_traits<F>;
    const uint8_t *codes = a.codes + (size_t)(row / GPU_TILE_N) * a.tile_bytes;
    const uint32_t r = row % GPU_TILE_N, g = r % 8, h = r / 8;
    uint32_t out[4];
    if constexpr (W::PLAIN) {
        const uint4 v =
            *reinterpret_cast<const uint4 *>(codes + ((size_t)r * ((a.k + 7) / 8) + k / 8) * 16);
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (uint32_t t = 0; t < 4; t++)
            out[t] = a.scale == 1.0f ? words[t] : scaled(words[t], 1.0f, 0.0f, a.scale);
    } else {
        const uint8_t *scales = a.scales + (size_t)(row / GPU_TILE_N) * a.tile_bytes;
        const weights_scale s =
            weights_scales<F>(scales + (size_t)(k / a.group) * GPU_TILE_N * W::SCALE_BYTES, g);
        const uint32_t step = k % W::TILE_K / 16, pair = h + k % 16 / 8 * 2;
#pragma unroll
        for (uint32_t t = 0; t < 4; t++) {
            const uint32_t *words = reinterpret_cast<const uint32_t *>(
                                        codes + (size_t)(k / W::TILE_K) * 512 + (4 * g + t) * 16) +
                                    step * W::WORDS;
            uint32_t own[2] = {words[0], words[W::WORDS - 1]}, pairs[4];
            weights_fragment<F>(pairs, own, s);
            const uint32_t v = pair == 0   ? pairs[0]
                               : pair == 1 ? pairs[1]
                               : pair == 2 ? pairs[2]
                                           : pairs[3];
            out[t] = scaled(v, s.scale[h], s.offset[h], a.scale);
        }
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}

template <enum gpu_format F>
__global__ __launch_bounds__(THREADS) void embed_kernel(const embed_args a)
{
    dependency_wait();
    dependency_launch();
    const uint32_t id = a.ids[blockIdx.x];
    const bool is_here = id >= a.first && id - a.first < a.n;
    uint16_t *out = a.out + (size_t)blockIdx.x * a.out_stride;
    for (uint32_t k = CHUNK * threadIdx.x; k < a.k; k += CHUNK * THREADS) {
        const uint4 v = is_here ? row_chunk<F>(a, id - a.first, k) : make_uint4(0, 0, 0, 0);
        store_chunk(out + k, a.k - k, a.is_aligned, v);
    }
}

struct columns_args {
    uint16_t *out;
    const uint16_t *x;
    const uint32_t *order;
    uint32_t out_stride, x_stride, n;
};

__global__ __launch_bounds__(THREADS) void columns_kernel(const columns_args a)
{
    dependency_wait();
    dependency_launch();
    const uint16_t *x = a.x + (size_t)blockIdx.x * a.x_stride;
    uint16_t *out = a.out + (size_t)blockIdx.x * a.out_stride;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) {
        const uint32_t from = a.order[i];
        out[i] = from == WEIGHT_NO_INPUT ? (uint16_t)0 : x[from];
    }
}

} // namespace

enum status cuda_embed(struct gpu_stream *s, const struct gpu_matrix *w,
                       const struct embed_params *p, struct error *err)
{
    static void (*const kernels[GPU_FORMAT_COUNT])(embed_args) = {
        embed_kernel<GPU_BF16>, embed_kernel<GPU_U4>,     embed_kernel<GPU_U4_MIN>,
        embed_kernel<GPU_I8>,   embed_kernel<GPU_I8_MIN>, embed_kernel<GPU_F8>,
        embed_kernel<GPU_MX4>,
    };
    embed_args a = {};
    if (p->n_rows == 0)
        return STATUS_OK;
    a.codes = static_cast<const uint8_t *>(w->codes);
    a.scales = static_cast<const uint8_t *>(w->scales);
    a.ids = p->ids;
    a.out = static_cast<uint16_t *>(p->out.data), a.out_stride = p->out.stride;
    a.tile_bytes = w->tile_bytes, a.n = w->n, a.k = w->k, a.group = w->group;
    a.first = p->first, a.scale = p->scale;
    a.is_aligned = (uintptr_t)a.out % 16 == 0 && a.out_stride % CHUNK == 0;
    TRY(gpu_enter(s->device, err));
    return gpu_check(launch_kernel(s, kernels[w->format], dim3(p->n_rows), dim3(THREADS), 0, a),
                     "embed", err);
}

enum status cuda_gather_columns(struct gpu_stream *s, struct view out, struct view x,
                                const uint32_t *order, uint32_t n_rows, uint32_t n,
                                struct error *err)
{
    columns_args a = {};
    if (n_rows == 0)
        return STATUS_OK;
    a.out = static_cast<uint16_t *>(out.data), a.out_stride = out.stride;
    a.x = static_cast<const uint16_t *>(x.data), a.x_stride = x.stride;
    a.order = order, a.n = n;
    TRY(gpu_enter(s->device, err));
    return gpu_check(launch_kernel(s, columns_kernel, dim3(n_rows), dim3(THREADS), 0, a),
                     "gather_columns", err);
}
