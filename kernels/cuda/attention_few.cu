/* Attention of tiles of few rows: 16 packed rows, the warps share out the tokens of a unit. */
#include "kernels/cuda/attention_launch.cuh"
#include "kernels/cuda/attention_tile.cuh"

using shape_64 = tile_shape<64, 1, 4, 1, 64, 4>;
using shape_96 = tile_shape<96, 1, 4, 1, 64, 3>;
using shape_128 = tile_shape<128, 1, 4, 1, 64, 3>;
using shape_256 = tile_shape<256, 1, 2, 1, 32, 3>;

uint32_t attention_few_blocks(uint32_t width, uint32_t shared_bytes)
{
    return width == 64    ? attention_blocks<shape_64>(shared_bytes)
           : width == 96  ? attention_blocks<shape_96>(shared_bytes)
           : width == 128 ? attention_blocks<shape_128>(shared_bytes)
                          : attention_blocks<shape_256>(shared_bytes);
}

template <class S>
static enum status enqueue(const attention_args &a, uint32_t n_kv_heads, struct gpu_stream *s,
                           struct error *err)
{
    static_assert(S::BM == ATTENTION_FEW_ROWS, "what the launch is made for");
    return attention_enqueue<S>(attention_tile_kernel<S>, a, n_kv_heads, s, err);
}

enum status attention_few(const attention_args &a, uint32_t width, uint32_t n_kv_heads,
                          struct gpu_stream *s, struct error *err)
{
    switch (width) {
    case 64:
        return enqueue<shape_64>(a, n_kv_heads, s, err);
    case 96:
        return enqueue<shape_96>(a, n_kv_heads, s, err);
    case 128:
        return enqueue<shape_128>(a, n_kv_heads, s, err);
    default:
        return enqueue<shape_256>(a, n_kv_heads, s, err);
    }
}
