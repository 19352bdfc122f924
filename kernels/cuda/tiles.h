#pragma once
/* Tiles: rows of one sequence at successive positions, which attention reads the keys for together.
 * Two classes, because two shapes of a kernel take them: *few* rows (decode, guesses, short rests)
 * and *many* (prefill). Found on the host where a pass's rows are uploaded; pure functions. */
#include "kernels/op_params.h"

struct gpu_tile {
    uint32_t first_row, n_rows; /* n_rows 0: there is none, its block has nothing to do */
    uint32_t slot;              /* rows in the tiles of its class before it */
};
#define GPU_TILE_FEW_ROWS 16u  /* of a tile of few rows at most */
#define GPU_TILE_ROWS     128u /* of any tile */
/* Passes of at most this many rows may be recorded, and replayed with other sequences: they have
 * exactly n_rows tiles, all of few rows, the last of them empty. */
#define GPU_FEW_PASS_ROWS 64u

/* Tiles of few rows come first. */
struct gpu_tile_counts {
    uint32_t n_few_tiles, n_few_rows;
    uint32_t n_many_tiles, n_many_rows;
};

/* rows: as the host has them, whose tables are told apart by their pointers; out has room for
 * n_rows. Rows at KV_ROW_NONE are tiles of their own. */
struct gpu_tile_counts gpu_tiles_find(const struct kv_row *rows, uint32_t n_rows,
                                      struct gpu_tile *out);
