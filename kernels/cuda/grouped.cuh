#pragma once
/* Grouped products: rows of many groups, each times its group's matrix, in one launch: experts of a
 * mixture, heads of latent attention, adapters. What a launch covers is a list of tiles on the
 * device (rows of one group that follow each other in `places`), or every row for every group; so
 * nobody waits for the host to count. Two kernels: grouped_small.cu reads each matrix once for few
 * rows and lives on memory bandwidth, grouped_large.cu shares tiles of both operands through shared
 * memory and lives on the tensor cores. Both add over K in float, in an order that follows from the
 * launch's shape, and end here: bias, activation, scale, rounding, and where it goes.
 *
 * Rows of x are 16-byte aligned and hold numbers or zeros up to k rounded up to 8 elements
 * (cuda_pad_rows makes such). */
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/launch.cuh"

#include <cuda_bf16.h>

constexpr uint32_t WARP = 32;

struct grouped_tile {
    uint32_t group, first, n; /* places first .. first + n - 1 */
};

/* One group of a table. */
struct grouped_matrix {
    struct gpu_matrix w;
    const float *bias; /* [w.n] or NULL */
};

/* What an expert table holds of each expert. */
struct gpu_expert {
    struct grouped_matrix gate, up, down;
};

enum grouped_result {
    GROUPED_GATED, /* bfloat16: act(first) * second */
    GROUPED_FLOAT,
    GROUPED_BF16,
    GROUPED_ADD, /* bfloat16: out += scale * result */
    GROUPED_ADD_FLOAT
};

#define GROUPED_INLINE_GROUPS 16u
#define GROUPED_INLINE_TILES  64u
struct grouped_args {
    /* Group g: the grouped_matrix at table + g * table_stride, its second (up) `second` bytes on.
     * table NULL: inline_groups. */
    const char *table;
    uint32_t table_stride, second;
    uint32_t n; /* outputs of a matrix; the most of them when they differ */
    uint32_t k; /* inputs, likewise */

    /* ids: tile i is place i alone, of group ids[i] - first_id, when it is below n_groups. Else
     * tiles, or, when they are NULL, the inline ones, or, when n_groups is not 0, rows 0 .. n_rows
     * - 1 for each group. */
    const uint32_t *ids;
    uint32_t first_id;
    const struct grouped_tile *tiles;
    const uint32_t *n_tiles; /* of tiles, on the device */
    uint32_t max_tiles;      /* at most so many, and all of them when there is no n_tiles */
    uint32_t tile_rows;      /* at most so many rows in a tile: 8, 16 or 128 */
    uint32_t n_groups, n_rows;

    const uint16_t *x;
    const uint32_t *x_rows; /* place -> row of x; NULL: the place */
    uint32_t x_stride, x_group_stride;
    void *out;
    const uint32_t *out_rows; /* place -> row of out; NULL: the place */
    uint32_t out_stride, out_group_stride;
    enum grouped_result result;
    bool fills; /* zeros behind a row's last output up to a multiple of 16: there is room */
    enum activation act;
    float limit;

    struct grouped_matrix inline_groups[GROUPED_INLINE_GROUPS];
    float inline_scales[GROUPED_INLINE_GROUPS];
    struct grouped_tile inline_tiles[GROUPED_INLINE_TILES];
};

constexpr uint32_t GROUPED_FEW_ROWS = 8, GROUPED_SMALL_ROWS = 16, GROUPED_LARGE_ROWS = 128;
cudaError_t grouped_small(const struct gpu_stream *s, const struct grouped_args &a,
                          uint32_t n_multiprocessors);
cudaError_t grouped_large(const struct gpu_stream *s, const struct grouped_args &a);
/* One of them, by tile_rows. */
static inline cudaError_t grouped_run(const struct gpu_stream *s, const struct grouped_args &a,
                                      uint32_t n_multiprocessors)
{
    return a.tile_rows == GROUPED_LARGE_ROWS ? grouped_large(s, a)
                                             : grouped_small(s, a, n_multiprocessors);
}

/* Without a bias. */
MUST_USE enum status grouped_matrix_fill(const struct weight *w, struct grouped_matrix *out,
                                         struct error *err);

/* Of groups with so many rows. */
static inline uint32_t grouped_tile_rows(uint32_t n_rows)
{
    return n_rows <= GROUPED_FEW_ROWS ? GROUPED_FEW_ROWS
           : n_rows <= 32             ? GROUPED_SMALL_ROWS
                                      : GROUPED_LARGE_ROWS;
}

/* Rows that need no padding. */
static inline bool grouped_is_aligned(const void *x, uint32_t stride, uint32_t k)
{
    return (uintptr_t)x % 16 == 0 && stride % 8 == 0 && k % 8 == 0;
}
/* to[group][row] = x[row] + group * group_stride, k elements and zeros up to to_stride. */
struct pad_args {
    const uint16_t *x;
    uint16_t *to;
    const uint32_t *rows; /* row i is x[rows[i]]; NULL: x[i] */
    uint32_t x_stride, group_stride, to_stride, n_rows, n_groups, k;
};
cudaError_t grouped_pad(const struct gpu_stream *s, const struct pad_args &a);

/* ---- for the two kernels ---- */

__device__ inline const struct grouped_matrix *grouped_group(const struct grouped_args &a,
                                                             uint32_t group)
{
    return a.table ? reinterpret_cast<const struct grouped_matrix *>(a.table +
                                                                     (size_t)group * a.table_stride)
                   : &a.inline_groups[group];
}

__device__ inline const struct grouped_matrix *grouped_second(const struct grouped_args &a,
                                                              const struct grouped_matrix *first)
{
    return reinterpret_cast<const struct grouped_matrix *>(reinterpret_cast<const char *>(first) +
                                                           a.second);
}

/* Tile i of a launch; n 0: there is none. */
__device__ inline struct grouped_tile grouped_tile_at(const struct grouped_args &a, uint32_t i)
{
    if (a.ids)
        return {a.ids[i] - a.first_id, i, a.ids[i] - a.first_id < a.n_groups ? 1u : 0u};
    if (a.tiles)
        return i < *a.n_tiles ? a.tiles[i] : grouped_tile{0, 0, 0};
    if (a.n_groups == 0)
        return a.inline_tiles[i];
    const uint32_t first = i / a.n_groups * a.tile_rows, left = a.n_rows - first;
    return {i % a.n_groups, first, left < a.tile_rows ? left : a.tile_rows};
}

__device__ inline uint32_t grouped_row(const uint32_t *rows, uint32_t place)
{
    return rows ? rows[place] : place;
}
