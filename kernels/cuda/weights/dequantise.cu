/* Converts codes to bfloat16, for products of many rows (blas.cu). A warp has one row tile and
 * 64 inputs. It reads its tiles of codes 16 bytes a lane, and converts them as the kernels of
 * few rows do. The values are stored in shared memory first, so that each row's 128 bytes are
 * written at once, 16 bytes a lane. Writing is the limit: 2 bytes for half a byte or one byte
 * that is read. */
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/weights/dequantise.cuh"

extern "C" {
#include "kernels/cuda/weights/dequantise.h"
}

namespace
{
constexpr uint32_t WARPS = 8, SPAN = DEQUANTISE_SPAN;

struct dequantise_args {
    const uint8_t *codes, *scales;
    uint16_t *to;
    uint32_t tile_bytes, k, group, row_elems, n_spans, n_units;
};

template <enum gpu_format F>
__global__ __launch_bounds__(32 * WARPS) void dequantise_kernel(const dequantise_args a)
{
    __shared__ __align__(16) dequantise_lines lines[WARPS];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t unit = blockIdx.x * WARPS + warp;
    dependency_wait(); /* the previous product reads the buffer that this kernel writes */
    dependency_launch();
    if (unit >= a.n_units)
        return;
    const uint32_t tile = unit / a.n_spans, k0 = unit % a.n_spans * SPAN;
    dequantise_span<F>(lines[warp], a.codes + (size_t)tile * a.tile_bytes,
                       a.scales + (size_t)tile * a.tile_bytes, k0, a.k, a.group);
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) { /* eight lanes write a row */
        const uint32_t row = 4 * i + lane / 8, c = lane % 8;
        const uint4 v = *reinterpret_cast<const uint4 *>(&lines[warp][row][4 * c]);
        uint16_t *to = a.to + ((size_t)tile * GPU_TILE_N + row) * a.row_elems + k0 + 8 * c;
        if (k0 + 8 * c < a.row_elems) /* inputs come in whole groups of 16 */
            *reinterpret_cast<uint4 *>(to) = v;
    }
}

template <enum gpu_format F>
cudaError_t enqueue(const dequantise_args &a, const struct gpu_stream *s)
{
    return launch_kernel(s, dequantise_kernel<F>, dim3((a.n_units + WARPS - 1) / WARPS),
                         dim3(32 * WARPS), 0, a);
}
} // namespace

enum status cuda_dequantise(struct gpu_stream *s, const struct gpu_matrix *w, uint32_t first_tile,
                            uint32_t n_tiles, void *to, struct error *err)
{
    dequantise_args a = {};
    const size_t skip = (size_t)first_tile * w->tile_bytes;
    a.codes = static_cast<const uint8_t *>(w->codes) + skip;
    a.scales = static_cast<const uint8_t *>(w->scales) + skip;
    a.to = static_cast<uint16_t *>(to);
    a.tile_bytes = w->tile_bytes, a.k = w->k, a.group = w->group;
    a.row_elems = gpu_padded_k(GPU_BF16, w->k);
    a.n_spans = (w->k + SPAN - 1) / SPAN;
    a.n_units = n_tiles * a.n_spans;
    if (a.n_units == 0)
        return STATUS_OK;
    TRY(gpu_enter(s->device, err));
    switch (w->format) {
    case GPU_U4:
        return gpu_check(enqueue<GPU_U4>(a, s), "dequantise", err);
    case GPU_U4_MIN:
        return gpu_check(enqueue<GPU_U4_MIN>(a, s), "dequantise", err);
    case GPU_I8:
        return gpu_check(enqueue<GPU_I8>(a, s), "dequantise", err);
    case GPU_I8_MIN:
        return gpu_check(enqueue<GPU_I8_MIN>(a, s), "dequantise", err);
    case GPU_F8:
        return gpu_check(enqueue<GPU_F8>(a, s), "dequantise", err);
    case GPU_MX4:
        return gpu_check(enqueue<GPU_MX4>(a, s), "dequantise", err);
    case GPU_BF16:
    case GPU_FORMAT_COUNT:
        break;
    }
    return error_set(err, STATUS_INTERNAL, "dequantise: weights of format %d are not quantised",
                     (int)w->format);
}
