#include "kernels/cuda/tiles.h"

static bool follows(const struct kv_row *a, const struct kv_row *b)
{
    return a->position != KV_ROW_NONE && b->position == a->position + 1 && b->blocks == a->blocks &&
           b->n_dropped == a->n_dropped;
}

/* Rows from first on that are one sequence's. */
static uint32_t run_length(const struct kv_row *rows, uint32_t first, uint32_t n_rows)
{
    uint32_t n = 1;
    while (first + n < n_rows && follows(&rows[first + n - 1], &rows[first + n]))
        n++;
    return n;
}

/* Cuts every run into tiles of at most `most` rows and takes those of one class. */
static uint32_t take_class(const struct kv_row *rows, uint32_t n_rows, uint32_t most, bool many,
                           struct gpu_tile *out, uint32_t *n_taken)
{
    uint32_t n_tiles = 0;
    *n_taken = 0;
    for (uint32_t first = 0, n, length = 0; first < n_rows; first += n, length -= n) {
        if (length == 0)
            length = run_length(rows, first, n_rows);
        n = length < most ? length : most;
        if ((n > GPU_TILE_FEW_ROWS) != many)
            continue;
        out[n_tiles++] = (struct gpu_tile){first, n, *n_taken};
        *n_taken += n;
    }
    return n_tiles;
}

struct gpu_tile_counts gpu_tiles_find(const struct kv_row *rows, uint32_t n_rows,
                                      struct gpu_tile *out)
{
    const bool is_few = n_rows <= GPU_FEW_PASS_ROWS;
    const uint32_t most = is_few ? GPU_TILE_FEW_ROWS : GPU_TILE_ROWS;
    struct gpu_tile_counts c = {0};
    c.n_few_tiles = take_class(rows, n_rows, most, false, out, &c.n_few_rows);
    if (!is_few)
        c.n_many_tiles = take_class(rows, n_rows, most, true, out + c.n_few_tiles, &c.n_many_rows);
    for (; is_few && c.n_few_tiles < n_rows; c.n_few_tiles++)
        out[c.n_few_tiles] = (struct gpu_tile){0, 0, n_rows};
    return c;
}
