#pragma once
/* Declares grouped products: rows of many groups, each multiplied by its group's matrix, in one
 * launch. Groups are experts of a mixture, heads of latent attention, or adapters. A launch
 * covers a list of tiles on the device (consecutive rows of one group in `places`), or every row
 * for every group. The host therefore needs no counts. There are two kernels. grouped_small.cu
 * reads each matrix once for few rows and is bound by memory. grouped_large.cu shares tiles of
 * both operands through shared memory and is bound by the tensor cores. Both add over K in
 * float, in an order that follows from the launch's shape. Both end in grouped_finish.cuh: bias,
 * activation, scale, rounding, storing.
 *
 * Rows of x must be aligned to 16 bytes and contain numbers or zeros up to k rounded up to 8
 * elements (grouped_pad makes such rows). */
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/weights/formats.cuh"

#include <cuda_bf16.h>

extern "C" {
#include "kernels/cuda/moe/abi.h"
}

constexpr uint32_t WARP = 32;

/* `grouped_matrix` is a table's entry for one group. */
struct grouped_matrix {
    struct gpu_matrix w;
    const float *bias; /* `bias` has the shape [w.n], or is NULL */
};

/* `gpu_expert` is an expert table's entry for one expert. */
struct gpu_expert {
    struct grouped_matrix gate, up, down;
};

/* `gpu_adapter` is an adapter table's entry for one matrix. a.w.n is 0 when the adapter has no
 * matrices for it. */
struct gpu_adapter {
    struct grouped_matrix a, b;
    float scale;
};

enum grouped_result {
    GROUPED_GATED, /* stores act(first) * second in bfloat16 */
    GROUPED_FLOAT,
    GROUPED_BF16,
    GROUPED_ADD, /* computes out += scale * result in bfloat16 */
    GROUPED_ADD_FLOAT
};

/* `grouped_out` is the destination of the results of one of the launch's parts. */
struct grouped_out {
    void *data;
    uint32_t stride;
};

struct grouped_args {
    /* Group g has its grouped_matrix at table + g * table_stride, and its second matrix (up)
     * `second` bytes further. The n_parts parts are side by side in the table. Part i is i *
     * part_stride bytes further, and its rows of x are i * x_part_stride elements further. Its
     * results go to outs[i]. */
    const char *table;
    uint64_t table_stride;
    uint32_t second, n_parts, part_stride, x_part_stride;
    uint32_t n; /* outputs of a matrix; the largest number if they differ */
    uint32_t k; /* inputs of a matrix; the largest number if they differ */

    /* With `ids`, tile i is place i alone, of group ids[i] - first_id, if that is below
     * n_groups. Without `ids`, the launch covers `tiles`, or, if `tiles` is NULL, rows 0 ..
     * n_rows - 1 for each of n_groups groups. With end_place, only places first_place ..
     * end_place - 1 of the tiles are covered, counted from first_place. */
    const uint32_t *ids;
    uint32_t first_id;
    const struct grouped_tile *tiles;
    const uint32_t *n_tiles; /* number of tiles, on the device */
    uint32_t first_place, end_place;
    uint32_t max_tiles; /* upper limit of *n_tiles */
    uint32_t tile_rows; /* most rows in a tile: 8, 16 or 128 */
    uint32_t n_groups, n_rows;
    /* K is cut as for cut_tiles tiles, so that sums do not depend on max_tiles. 0 = as for
     * max_tiles. */
    uint32_t cut_tiles;

    const uint16_t *x;
    const uint32_t *x_rows; /* maps a place to a row of x; NULL: the place is the row */
    uint32_t x_stride, x_group_stride;
    struct grouped_out outs[LINEAR_MAX_PARTS];
    const uint32_t *out_rows; /* maps a place to a row of out; NULL: the place is the row */
    uint32_t out_group_stride;
    enum grouped_result result;
    bool fills; /* whether zeros are written behind a row's last output, up to a multiple of 16 */
    enum activation act;
    float limit;
    uint32_t scale; /* for ADD only: bytes from a group's matrix to its float scale */
};

constexpr uint32_t GROUPED_FEW_ROWS = 8, GROUPED_SMALL_ROWS = 16, GROUPED_LARGE_ROWS = 128;
cudaError_t grouped_small(const struct gpu_stream *s, const struct grouped_args &a,
                          uint32_t n_multiprocessors);
cudaError_t grouped_large(const struct gpu_stream *s, const struct grouped_args &a);

/* Writes the table entry of matrix w, without a bias, to *out. */
MUST_USE enum status grouped_matrix_fill(const struct weight *w, struct grouped_matrix *out,
                                         struct error *err);

/* Returns the number of rows of a tile for groups of n_rows rows. */
static inline uint32_t grouped_tile_rows(uint32_t n_rows)
{
    return n_rows <= GROUPED_FEW_ROWS ? GROUPED_FEW_ROWS
           : n_rows <= 32             ? GROUPED_SMALL_ROWS
                                      : GROUPED_LARGE_ROWS;
}

/* Returns whether rows need no padding. */
static inline bool grouped_is_aligned(const void *x, uint32_t stride, uint32_t k)
{
    return (uintptr_t)x % 16 == 0 && stride % 8 == 0 && k % 8 == 0;
}
/* `pad_args` describes the copy to[group][row] = x[row] + group * group_stride: k elements, and
 * zeros up to to_stride. */
struct pad_args {
    const uint16_t *x;
    uint16_t *to;
    const uint32_t *rows; /* row i is x[rows[i]]; if rows is NULL, it is x[i] */
    uint32_t x_stride, group_stride, to_stride, n_rows, n_groups, k;
};
cudaError_t grouped_pad(const struct gpu_stream *s, const struct pad_args &a);

/* ---- for the two kernels ---- */

__device__ inline const struct grouped_matrix *grouped_group(const struct grouped_args &a,
                                                             uint32_t group)
{
    return reinterpret_cast<const struct grouped_matrix *>(a.table + group * a.table_stride +
                                                           (size_t)blockIdx.z * a.part_stride);
}

__device__ inline const struct grouped_matrix *grouped_second(const struct grouped_args &a,
                                                              const struct grouped_matrix *first)
{
    return reinterpret_cast<const struct grouped_matrix *>(reinterpret_cast<const char *>(first) +
                                                           a.second);
}

/* Returns tile i of a launch; n is 0 when there is none. */
__device__ inline struct grouped_tile grouped_tile_at(const struct grouped_args &a, uint32_t i)
{
    if (a.ids)
        return {a.ids[i] - a.first_id, i, a.ids[i] - a.first_id < a.n_groups ? 1u : 0u};
    if (a.tiles) {
        struct grouped_tile t = i < *a.n_tiles ? a.tiles[i] : grouped_tile{0, 0, 0};
        if (a.end_place) {
            const uint32_t begin = t.first > a.first_place ? t.first : a.first_place;
            const uint32_t end = t.first + t.n < a.end_place ? t.first + t.n : a.end_place;
            t = {t.group, begin - a.first_place, end > begin ? end - begin : 0};
        }
        return t;
    }
    const uint32_t first = i / a.n_groups * a.tile_rows, left = a.n_rows - first;
    return {i % a.n_groups, first, left < a.tile_rows ? left : a.tile_rows};
}

__device__ inline uint32_t grouped_row(const uint32_t *rows, uint32_t place)
{
    return rows ? rows[place] : place;
}
