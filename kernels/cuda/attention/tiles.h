#pragma once
/* Tiles: rows of one sequence at successive positions, which attention reads the keys for together.
 * Two classes, because two shapes of a kernel take them: *few* rows (decode, draft tokens, short
 * rests) and *many* (prefill). Found on the host where a pass's rows are uploaded; pure functions.
 */
#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/op_params.h"
#ifdef __cplusplus
}
#endif

#define GPU_TILE_FEW_ROWS 16u  /* of a tile of few rows at most */
#define GPU_TILE_ROWS     128u /* of any tile */
/* All tiles of a pass of at most this many rows are of few rows. */
#define GPU_FEW_PASS_ROWS 64u
/* A pass of at most this many rows may be recorded, and replayed with other sequences, if all of
 * its tiles are of few rows. */
#define GPU_RECORD_ROWS 256u

/* One entry for each tile of many rows. A tile of few has as many entries as rows, which differ in
 * part alone: the table's length, and with it a launch, follows from the number of rows and not
 * from whose they are. */
struct gpu_tile {
    uint32_t first_row, n_rows;
    uint32_t slot; /* rows in the tiles of its class before it */
    uint32_t part; /* 0 .. n_rows - 1 of a tile of few rows, 0 of many */
};

/* Entries of few rows come first. */
struct gpu_tile_counts {
    uint32_t n_few; /* entries, which are rows */
    uint32_t n_many_tiles, n_many_rows;
};

/* rows: as the host has them, whose tables are told apart by their pointers; out has room for
 * n_rows. Rows at KV_ROW_NONE are tiles of their own. */
struct gpu_tile_counts gpu_tiles_find(const struct kv_row *rows, uint32_t n_rows,
                                      struct gpu_tile *out);
/* Whether gpu_tiles_find gives tiles of few rows alone: then its number of entries is n_rows. */
bool gpu_tiles_are_few(const struct kv_row *rows, uint32_t n_rows);

/* A sequence's rows of a pass, all of them at successive positions. */
struct gpu_run {
    uint32_t first_row, n_rows;
    uint32_t position; /* of the first row */
};
/* Which runs are taken: those of at least least_rows (at least 1) for which
 * position * of_key <= pairs * of_pair, where pairs are those of a row and a position that it sees.
 */
struct gpu_run_rule {
    uint32_t least_rows;
    uint64_t of_key, of_pair;
};
/* The number of runs; out has room for n_rows / least_rows. */
uint32_t gpu_runs_find(const struct kv_row *rows, uint32_t n_rows, const struct gpu_run_rule *rule,
                       struct gpu_run *out);
/* gpu_tiles_find of the rows that are in none of the runs, which gpu_runs_find gave. */
struct gpu_tile_counts gpu_tiles_find_beside(const struct kv_row *rows, uint32_t n_rows,
                                             const struct gpu_run *runs, uint32_t n_runs,
                                             struct gpu_tile *out);
