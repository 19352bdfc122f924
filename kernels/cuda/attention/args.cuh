#pragma once
/* Defines what all attention kernels share: their arguments, and the rows, heads and positions
 * of a block of threads. load.cuh loads into shared memory; store.cuh stores the results.
 *
 * Rows of a block are packed: m = row of the tile * query heads of the KV head + query head. A
 * block reads positions in units of BN tokens that begin at multiples of BN. A split has an even
 * share of its tile's units, and the device computes this share. */
#include "kernels/cuda/attention/abi.h"
#include "kernels/cuda/device/common.cuh"
#include "kernels/cuda/device/ptx.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

constexpr float LOG2E = 1.4426950408889634f;

struct attention_args {
    const uint16_t *q;
    uint16_t *out;
    uint32_t q_stride, out_stride;
    const kv_row *rows;
    const gpu_tile *tiles; /* tiles of the class that is launched */
    /* n_chunks: number of blocks that share the packed rows of an entry */
    uint32_t n_tiles, n_chunks;
    /* k_scales, v_scales: NULL if the cache holds no codes */
    const uint8_t *k, *v, *k_scales, *v_scales;
    uint64_t block_stride;
    dtype type;
    uint32_t n_heads, group, first_in_group, window;
    uint32_t head_dim, v_dim, block_tokens, elem_bytes;
    int32_t block_shift; /* log2(block_tokens); -1: block_tokens is not a power of two */
    uint32_t n_scales;   /* number of scales of a token; a latent has 2 */
    float scale, softcap;
    const float *sinks;
    uint32_t n_splits;
    float *parts; /* `parts` has the shape [slot][head][split][v_dim]: used if n_splits > 1 */
    float2 *sums; /* `sums` has the shape [slot][head][split]: maximum (exponent of two), sum */
    bool is_latent;
    bool is_plain; /* the cache is bfloat16 at multiples of 16 bytes and is copied asynchronously */
    /* the cache holds codes at multiples of 16 bytes, which are copied asynchronously and
     * converted later */
    bool is_staged;
    bool is_vector;        /* tokens lie at multiples of 8 elements */
    bool q_vector;         /* heads of Q lie at multiples of 16 bytes */
    uint32_t shared_bytes; /* limit of shared memory for a block, in bytes */
};
/* Fills in the arguments that follow from p. The caller fills in tiles, splits and parts. */
attention_args attention_args_of(const struct attention_params *p);

/* `attention_task` describes the work of one block of threads. */
struct attention_task {
    uint32_t first_row, slot; /* first row and slot of the tile */
    uint32_t head, n_heads; /* first query head of the KV head, and the number of its query heads */
    uint32_t m_first, n_m;  /* first packed row of this block, and the number of its packed rows */
    int32_t position;       /* position of the tile's first row; -1: padding */
    uint32_t first_key, last_key; /* first and last key that any row sees */
    uint32_t unit, end_unit;      /* first unit of the split and the unit behind its last */
    uint32_t i_kv_head, i_split;
    const uint32_t *blocks;
    uint32_t n_dropped;
};

__device__ inline uint32_t first_visible(const attention_args &a, uint32_t position)
{
    return a.window && position >= a.window ? position - a.window + 1 : 0;
}

/* Finds the block's work. Returns false when the block has no work and no result to write.
 * Chunks of later rows, which see more keys, start first. */
__device__ inline bool task_find(const attention_args &a, uint32_t block_rows, uint32_t unit_tokens,
                                 attention_task *t)
{
    const uint32_t x = gridDim.x - 1 - blockIdx.x;
    const gpu_tile tile = a.tiles[x / a.n_chunks];
    t->i_kv_head = blockIdx.y, t->i_split = blockIdx.z;
    const uint32_t begin = t->i_kv_head * a.group, end = begin + a.group, skip = a.first_in_group;
    t->head = begin > skip ? begin - skip : 0;
    t->n_heads = min(end - skip, a.n_heads) - t->head;
    t->first_row = tile.first_row, t->slot = tile.slot;
    t->m_first = (tile.part * a.n_chunks + x % a.n_chunks) * block_rows;
    const uint32_t n_packed = tile.n_rows * t->n_heads;
    if (t->m_first >= n_packed)
        return false;
    t->n_m = min(block_rows, n_packed - t->m_first);
    const kv_row row = a.rows[tile.first_row];
    t->blocks = row.blocks, t->n_dropped = row.n_dropped;
    t->position = -1, t->unit = t->end_unit = 0, t->first_key = t->last_key = 0;
    if (row.position == KV_ROW_NONE)
        return true;
    t->position = (int32_t)row.position;
    t->first_key = first_visible(a, row.position + t->m_first / t->n_heads);
    t->last_key = row.position + (t->m_first + t->n_m - 1) / t->n_heads;
    const uint32_t unit = t->first_key / unit_tokens;
    const uint32_t n_units = t->last_key / unit_tokens + 1 - unit;
    t->unit = unit + n_units * t->i_split / a.n_splits;
    t->end_unit = unit + n_units * (t->i_split + 1) / a.n_splits;
    return true;
}

/* Returns the position of packed row m of the block, or -1 when the row sees no key. */
__device__ inline int32_t row_position(const attention_task &t, uint32_t m)
{
    return m < t.n_m && t.position >= 0 ? t.position + (int32_t)((t.m_first + m) / t.n_heads) : -1;
}

__device__ inline bool is_visible(const attention_args &a, int32_t key, int32_t position)
{
    return key <= position && (a.window == 0 || key + (int64_t)a.window > position);
}

__device__ inline uint32_t pack_bf16(float lo, float hi)
{
    const __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    uint32_t word;
    memcpy(&word, &v, sizeof word);
    return word;
}

/* Returns cap * tanh(x / cap). */
__device__ inline float softcapped(float x, float cap)
{
    const float e = exp2f(x * (2.0f * LOG2E / cap));
    return cap - 2.0f * cap / (e + 1.0f);
}
