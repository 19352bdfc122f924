/* Computes attention of tiles of few rows: a block has 16 packed rows, and its warps divide the
 * tokens of a unit among them. */
#include "kernels/cuda/attention/launch.cuh"
#include "kernels/cuda/attention/tile.cuh"

using shapes = attention_shapes<tile_shape<64, 1, 4, 1, 64, 4>, tile_shape<96, 1, 4, 1, 64, 3>,
                                tile_shape<128, 1, 4, 1, 64, 3>, tile_shape<256, 1, 2, 1, 32, 3>>;

uint32_t attention_few_blocks(uint32_t width, uint32_t shared_bytes)
{
    return shapes::blocks(width, shared_bytes);
}

enum status attention_few(const attention_args &a, uint32_t width, uint32_t n_kv_heads,
                          struct gpu_stream *s, struct error *err)
{
    return shapes::at(width, [&](auto shape) {
        using S = decltype(shape);
        static_assert(S::BM == ATTENTION_FEW_ROWS, "what the launch is made for");
        return attention_enqueue<S>(attention_tile_kernel<S>, a, n_kv_heads, s, err);
    });
}
