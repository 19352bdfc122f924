/* Computes attention of tiles of many rows. A block has 4 warps of 32 packed rows each (16 rows
 * for heads of 256 dimensions). Each loaded fragment of a key or value is therefore used twice.
 * With units of 32 tokens, the scores, weights and results of two blocks fit into the registers
 * of an SM. */
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
