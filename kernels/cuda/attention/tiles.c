#include "kernels/cuda/attention/tiles.h"

#include <stddef.h>

static bool follows(const struct kv_row *a, const struct kv_row *b)
{
    return a->position != KV_ROW_NONE && b->position == a->position + 1 && b->blocks == a->blocks &&
           b->n_dropped == a->n_dropped;
}

/* Returns the number of rows from `first` on that are successive positions of one sequence. */
static uint32_t run_length(const struct kv_row *rows, uint32_t first, uint32_t n_rows)
{
    uint32_t n = 1;
    while (first + n < n_rows && follows(&rows[first + n - 1], &rows[first + n]))
        n++;
    return n;
}

/* `cut` holds the rows that become tiles. */
struct cut {
    const struct kv_row *rows;
    const struct gpu_run *runs; /* runs that are left out, in order */
    uint32_t n_rows, n_runs;
};

/* Cuts every run that is not left out into tiles of at most `most` rows, and writes the tiles of
 * one class. Returns the number of entries; *n_taken is the number of rows in these entries. */
static uint32_t take_class(const struct cut *c, uint32_t most, bool many, struct gpu_tile *out,
                           uint32_t *n_taken)
{
    uint32_t n_entries = 0, i_run = 0;
    *n_taken = 0;
    for (uint32_t first = 0, n, length = 0; first < c->n_rows; first += n, length -= n) {
        if (length == 0)
            length = run_length(c->rows, first, c->n_rows);
        n = length < most ? length : most;
        if (i_run < c->n_runs && first == c->runs[i_run].first_row) {
            n = length;
            i_run++;
            continue;
        }
        if ((n > GPU_TILE_FEW_ROWS) != many)
            continue;
        for (uint32_t part = 0; part < (many ? 1 : n); part++)
            out[n_entries++] = (struct gpu_tile){first, n, *n_taken, part};
        *n_taken += n;
    }
    return n_entries;
}

bool gpu_tiles_are_few(const struct kv_row *rows, uint32_t n_rows)
{
    bool few = true;
    for (uint32_t first = 0, n; few && n_rows > GPU_FEW_PASS_ROWS && first < n_rows; first += n) {
        n = run_length(rows, first, n_rows);
        few = n <= GPU_TILE_FEW_ROWS;
    }
    return few;
}

struct gpu_tile_counts gpu_tiles_find_beside(const struct kv_row *rows, uint32_t n_rows,
                                             const struct gpu_run *runs, uint32_t n_runs,
                                             struct gpu_tile *out)
{
    const uint32_t most = n_rows <= GPU_FEW_PASS_ROWS ? GPU_TILE_FEW_ROWS : GPU_TILE_ROWS;
    const struct cut cut = {rows, runs, n_rows, n_runs};
    struct gpu_tile_counts c = {0};
    uint32_t n_few_rows;
    c.n_few = take_class(&cut, most, false, out, &n_few_rows);
    c.n_many_tiles = take_class(&cut, most, true, out + c.n_few, &c.n_many_rows);
    return c;
}

struct gpu_tile_counts gpu_tiles_find(const struct kv_row *rows, uint32_t n_rows,
                                      struct gpu_tile *out)
{
    return gpu_tiles_find_beside(rows, n_rows, NULL, 0, out);
}

static bool is_taken(const struct gpu_run_rule *rule, const struct gpu_run *r)
{
    const uint64_t n = r->n_rows, pairs = n * r->position + n * (n + 1) / 2;
    return n >= rule->least_rows && r->position * rule->of_key <= pairs * rule->of_pair;
}

uint32_t gpu_runs_find(const struct kv_row *rows, uint32_t n_rows, const struct gpu_run_rule *rule,
                       struct gpu_run *out)
{
    uint32_t n = 0;
    for (uint32_t first = 0, length; first < n_rows; first += length) {
        length = run_length(rows, first, n_rows);
        const struct gpu_run r = {first, length, rows[first].position};
        if (r.position != KV_ROW_NONE && is_taken(rule, &r))
            out[n++] = r;
    }
    return n;
}
