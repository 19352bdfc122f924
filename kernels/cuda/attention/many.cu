/* Attention of tiles of many rows: 4 warps of 32 packed rows each (of 16 where a head has 256
 * dimensions), so that a key's or value's fragment is used twice for each time it is loaded. Units
 * of 32 tokens keep scores, weights and results in the registers of two blocks for an SM. */
#include "kernels/cuda/attention/launch.cuh"
#include "kernels/cuda/attention/tile.cuh"

using shapes = attention_shapes<tile_shape<64, 4, 1, 2, 32, 2>, tile_shape<96, 4, 1, 2, 32, 2>,
                                tile_shape<128, 4, 1, 2, 32, 2>, tile_shape<256, 4, 1, 1, 32, 2>>;

uint32_t attention_many_rows(uint32_t width, uint32_t shared_bytes)
{
    return shapes::at(width, [&](auto shape) {
        using S = decltype(shape);
        return S::SHARED_BYTES > shared_bytes ? 0u : (uint32_t)S::BM;
    });
}

uint32_t attention_many_blocks(uint32_t width, uint32_t shared_bytes)
{
    return shapes::blocks(width, shared_bytes);
}

enum status attention_many(const attention_args &a, uint32_t width, uint32_t n_kv_heads,
                           struct gpu_stream *s, struct error *err)
{
    return shapes::at(width, [&](auto shape) {
        using S = decltype(shape);
        return attention_enqueue<S>(attention_tile_kernel<S>, a, n_kv_heads, s, err);
    });
}
