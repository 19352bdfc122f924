#pragma once
/* Declares tiles: rows of one sequence at successive positions, for which attention loads the
 * keys once. There are two classes for two shapes of a kernel: *few* rows (decode, draft tokens,
 * the last rows of a prompt) and *many* (prefill). Tiles are found on the host when a pass's
 * rows are uploaded. All functions are pure. */
#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/op_params.h"
#ifdef __cplusplus
}
#endif

#define GPU_TILE_FEW_ROWS 16u  /* most rows of a tile of few rows */
#define GPU_TILE_ROWS     128u /* most rows of any tile */
/* A pass of at most GPU_FEW_PASS_ROWS rows has only tiles of few rows. */
#define GPU_FEW_PASS_ROWS 64u
/* A pass of at most GPU_RECORD_ROWS rows may be recorded, and replayed with other sequences, if
 * all its tiles have few rows. */
#define GPU_RECORD_ROWS 256u

/* A tile of many rows has one entry. A tile of few rows has one entry for each row, and these
 * entries differ only in `part`. The table's length, and with it a launch, therefore follows
 * from the number of rows and not from the rows' sequences. */
struct gpu_tile {
    uint32_t first_row, n_rows;
    uint32_t slot; /* number of rows in earlier tiles of the class */
    /* `part` is the number of the entry within its tile. With few rows it is 0 .. n_rows - 1;
     * with many rows it is 0. */
    uint32_t part;
};

/* `gpu_tile_counts` holds numbers of entries; entries of few rows are first. */
struct gpu_tile_counts {
    uint32_t n_few; /* number of entries of few rows, which is the number of their rows */
    uint32_t n_many_tiles, n_many_rows;
};

/* Writes the tiles of n_rows rows to `out`, which has space for n_rows entries. `rows` are host
 * data: equal block-table pointers mean the same sequence. A row at KV_ROW_NONE is a tile of its
 * own. */
struct gpu_tile_counts gpu_tiles_find(const struct kv_row *rows, uint32_t n_rows,
                                      struct gpu_tile *out);
/* Returns whether gpu_tiles_find makes only tiles of few rows. The number of entries then is
 * n_rows. */
bool gpu_tiles_are_few(const struct kv_row *rows, uint32_t n_rows);

/* `gpu_run` names a sequence's rows in a pass, at successive positions. */
struct gpu_run {
    uint32_t first_row, n_rows;
    uint32_t position; /* position of the first row */
};
/* `gpu_run_rule` selects the runs: a run has at least least_rows rows (at least 1), and position
 * * of_key <= pairs * of_pair. A pair is a row and a position that it sees. */
struct gpu_run_rule {
    uint32_t least_rows;
    uint64_t of_key, of_pair;
};
/* Writes the runs that the rule selects to `out`, which has room for n_rows / least_rows.
 * Returns the number of runs. */
uint32_t gpu_runs_find(const struct kv_row *rows, uint32_t n_rows, const struct gpu_run_rule *rule,
                       struct gpu_run *out);
/* Works like gpu_tiles_find, for the rows that are in none of the runs from gpu_runs_find. */
struct gpu_tile_counts gpu_tiles_find_beside(const struct kv_row *rows, uint32_t n_rows,
                                             const struct gpu_run *runs, uint32_t n_runs,
                                             struct gpu_tile *out);
