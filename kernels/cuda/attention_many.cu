/* Attention of tiles of many rows: 4 warps of 32 packed rows each (of 16 where a head has 256
 * dimensions), so that a key's or value's fragment is used twice for each time it is loaded. Units
 * of 32 tokens keep scores, weights and results in the registers of two blocks for an SM. */
#include "kernels/cuda/attention_launch.cuh"
#include "kernels/cuda/attention_tile.cuh"

using shape_64 = tile_shape<64, 4, 1, 2, 32, 2>;
using shape_96 = tile_shape<96, 4, 1, 2, 32, 2>;
using shape_128 = tile_shape<128, 4, 1, 2, 32, 2>;
using shape_256 = tile_shape<256, 4, 1, 1, 32, 2>;

uint32_t attention_many_rows(uint32_t width, uint32_t shared_bytes)
{
    const uint32_t wanted = width <= 128 ? shape_128::SHARED_BYTES : shape_256::SHARED_BYTES;
    if (wanted > shared_bytes)
        return 0;
    return width <= 128 ? shape_128::BM : shape_256::BM;
}

uint32_t attention_many_blocks(uint32_t width, uint32_t shared_bytes)
{
    return width <= 128 ? attention_blocks<shape_128>(shared_bytes)
                        : attention_blocks<shape_256>(shared_bytes);
}

template <class S>
static enum status enqueue(const attention_args &a, uint32_t n_kv_heads, struct gpu_stream *s,
                           struct error *err)
{
    return attention_enqueue<S>(attention_tile_kernel<S>, a, n_kv_heads, s, err);
}

enum status attention_many(const attention_args &a, uint32_t width, uint32_t n_kv_heads,
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
