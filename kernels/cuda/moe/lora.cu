/* Computes the sums that adapters add. Two grouped products (grouped.cuh) cover all rows with
 * adapters. The first multiplies by each adapter's A into scratch. The second multiplies by B
 * and adds to the rows' results. backend/moe.c calls this file, and makes the tables when an
 * adapter is loaded.
 * An adapter is a group, read from a table on the device. Its rows are a list of tiles in the
 * pass's uploads. The launches are therefore the same for any mix of adapters and may be
 * recorded. Blocks of tiles that do not exist end at once, and so do blocks behind a smaller
 * rank. Matrices with the same input (Q, K, V; gate, up) share a launch, as the third dimension
 * of the grid. A row belongs to one adapter, so no two blocks add to the same element.
 *
 * Bytes: with few rows (grouped_small.cu) a block streams an adapter's A with all of its warps
 * along K, 16 bytes a lane. A tile's low part is a few KB that stay in the second-level cache. B
 * is read by as many blocks as its outputs need. */
#include "kernels/cuda/moe/grouped_run.cuh"

namespace
{
uint32_t rounded(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

/* `turn` describes rows begin .. begin + n - 1 of the list, which are processed together. */
struct turn {
    const struct adapters_params *p;
    const struct cuda_adapter_rows *rows;
    uint32_t begin, n, low_stride;
    uint16_t *low; /* `low` has the shape [n_parts][n][low_stride] */
    uint32_t n_multiprocessors;
    const struct gpu_stream *stream;
};

/* Returns the arguments that both products share. Small tiles are used for a small rank, because
 * most of a large block would have no work. */
struct grouped_args product_of(const struct turn &t, size_t matrix, uint32_t n, uint32_t k)
{
    const struct cuda_adapter_rows *r = t.rows;
    const bool many = r->most_many > 0 && n > 64;
    struct grouped_args a = {};
    a.table =
        static_cast<const char *>(t.p->table) + t.p->first * sizeof(struct gpu_adapter) + matrix;
    a.table_stride = t.p->stride;
    a.n_parts = t.p->n_parts;
    a.part_stride = sizeof(struct gpu_adapter);
    a.n = n;
    a.k = k;
    a.tiles = many ? r->many : r->few;
    a.n_tiles = r->n_tiles + (many ? 1 : 0);
    a.max_tiles = many ? r->most_many : r->most_few;
    a.tile_rows = many ? GROUPED_LARGE_ROWS : r->few_rows;
    a.cut_tiles = 1;
    a.first_place = t.begin;
    a.end_place = t.begin + t.n;
    return a;
}

cudaError_t run_down(const struct turn &t, const uint16_t *x, uint32_t x_stride,
                     const uint32_t *x_rows)
{
    struct grouped_args a = product_of(t, offsetof(struct gpu_adapter, a), t.p->most_rank, t.p->k);
    a.x = x;
    a.x_stride = x_stride;
    a.x_rows = x_rows;
    for (uint32_t i = 0; i < t.p->n_parts; i++)
        a.outs[i] = {t.low + (size_t)i * t.n * t.low_stride, t.low_stride};
    a.result = GROUPED_BF16;
    a.fills = true;
    return grouped_run(t.stream, a, t.n_multiprocessors);
}

cudaError_t run_up(const struct turn &t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t.p->n_parts; i++)
        n = t.p->parts[i].n > n ? t.p->parts[i].n : n;
    struct grouped_args a = product_of(t, offsetof(struct gpu_adapter, b), n, t.p->most_rank);
    a.x = t.low;
    a.x_stride = t.low_stride;
    a.x_part_stride = t.n * t.low_stride;
    a.out_rows = t.rows->list + t.begin;
    for (uint32_t i = 0; i < t.p->n_parts; i++)
        a.outs[i] = {t.p->parts[i].out.data, t.p->parts[i].out.stride};
    a.result = t.p->to_float ? GROUPED_ADD_FLOAT : GROUPED_ADD;
    a.scale = offsetof(struct gpu_adapter, scale) - offsetof(struct gpu_adapter, b);
    return grouped_run(t.stream, a, t.n_multiprocessors);
}

/* Returns the bytes of scratch for a row: its low parts, and its inputs if these must be padded. */
uint64_t row_bytes(uint32_t n_parts, uint32_t rank, uint32_t k, bool is_aligned)
{
    return ((uint64_t)n_parts * rounded(rank, 16) + (is_aligned ? 0 : rounded(k, 8))) *
           sizeof(uint16_t);
}

enum status run_turn(const struct turn &t, bool is_aligned, struct error *err)
{
    const struct adapters_params *p = t.p;
    const uint16_t *x = static_cast<const uint16_t *>(p->x.data);
    const uint32_t *list = t.rows->list + t.begin, padded = rounded(p->k, 8);
    uint16_t *copy = t.low + (size_t)p->n_parts * t.n * t.low_stride;
    const struct pad_args pad = {x, copy, list, p->x.stride, 0, padded, t.n, 1, p->k};
    if (is_aligned)
        TRY(gpu_check(run_down(t, x, p->x.stride, list), "adapters: down", err));
    else {
        TRY(gpu_check(grouped_pad(t.stream, pad), "adapters: pad", err));
        TRY(gpu_check(run_down(t, copy, padded, nullptr), "adapters: down", err));
    }
    return gpu_check(run_up(t), "adapters: up", err);
}

/* ---- the list and its tiles ---- */

/* Returns the most tiles that n_rows rows can have when they are divided among n_adapters lists,
 * none of which is empty. Each further adapter may add a tile. */
uint32_t tiles_bound(uint32_t n_rows, uint32_t n_adapters, uint32_t tile_rows)
{
    const uint32_t n = n_adapters < n_rows ? n_adapters : n_rows;
    return n + (n_rows - n) / tile_rows;
}

uint32_t few_rows_of(uint32_t n_rows)
{
    return n_rows <= GROUPED_FEW_ROWS ? GROUPED_FEW_ROWS : GROUPED_SMALL_ROWS;
}

uint32_t tiles_fill(const struct adapter_rows *rows, uint32_t tile_rows, struct grouped_tile *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < rows->n_adapters; i++)
        for (uint32_t at = rows->first[i]; at < rows->first[i + 1]; at += tile_rows) {
            const uint32_t left = rows->first[i + 1] - at;
            out[n++] = {i, at, left < tile_rows ? left : tile_rows};
        }
    return n;
}

/* Rounds up the number of tiles in the launches of a small pass: a recording serves any number
 * of tiles up to the rounded number. */
uint32_t rounded_tiles(uint32_t n, uint32_t bound)
{
    uint32_t most = 1;
    while (most < n)
        most *= 4;
    return most < bound ? most : bound;
}
} // namespace

uint64_t cuda_adapter_rows_bytes(uint32_t n_rows, uint32_t n_adapters)
{
    const uint64_t few = tiles_bound(n_rows, n_adapters, few_rows_of(n_rows));
    const uint64_t many =
        n_rows > CUDA_ADAPTER_FEW ? tiles_bound(n_rows, n_adapters, GROUPED_LARGE_ROWS) : 0;
    return (2 + (uint64_t)n_rows) * sizeof(uint32_t) + (few + many) * sizeof(struct grouped_tile);
}

void cuda_adapter_rows_fill(const struct adapter_rows *rows, bool is_recorded, void *host,
                            const void *device, struct cuda_adapter_rows *out)
{
    const uint32_t few_rows = few_rows_of(rows->n_rows);
    const uint32_t bound = tiles_bound(rows->n_rows, rows->n_adapters, few_rows);
    uint32_t *n_tiles = static_cast<uint32_t *>(host), *list = n_tiles + 2, most = 0;
    struct grouped_tile *few = reinterpret_cast<struct grouped_tile *>(list + rows->n_rows);
    const uint32_t *to = static_cast<const uint32_t *>(device);
    memcpy(list, rows->list, rows->n_rows * sizeof *list);
    n_tiles[0] = tiles_fill(rows, few_rows, few);
    for (uint32_t i = 0; i < rows->n_adapters; i++)
        most =
            rows->first[i + 1] - rows->first[i] > most ? rows->first[i + 1] - rows->first[i] : most;
    const bool is_small = rows->n_rows <= CUDA_ADAPTER_FEW || is_recorded;
    const bool many = !is_small && grouped_tile_rows(most) == GROUPED_LARGE_ROWS;
    n_tiles[1] = many ? tiles_fill(rows, GROUPED_LARGE_ROWS, few + bound) : 0;
    *out = {};
    out->n_tiles = to;
    out->list = to + 2;
    out->few = reinterpret_cast<const struct grouped_tile *>(to + 2 + rows->n_rows);
    out->many = out->few + bound;
    out->n_rows = rows->n_rows;
    out->n_adapters = rows->n_adapters;
    out->few_rows = few_rows;
    out->most_few = is_small ? rounded_tiles(n_tiles[0], bound) : n_tiles[0];
    out->most_many = n_tiles[1];
}

/* ---- tables ---- */

uint64_t cuda_adapter_bytes(void)
{
    return sizeof(struct gpu_adapter);
}

enum status cuda_adapter_table_fill(const struct lora_pair *pairs, uint32_t n, void *out,
                                    struct error *err)
{
    struct gpu_adapter *to = static_cast<struct gpu_adapter *>(out);
    for (uint32_t i = 0; i < n; i++) {
        to[i] = {};
        if (pairs[i].a.n == 0)
            continue;
        TRY(grouped_matrix_fill(&pairs[i].a, &to[i].a, err));
        TRY(grouped_matrix_fill(&pairs[i].b, &to[i].b, err));
        to[i].scale = pairs[i].scale;
    }
    return STATUS_OK;
}

/* ---- the operator ---- */

uint64_t cuda_adapters_scratch(uint32_t n_rows, uint32_t rank, uint32_t k)
{
    const uint32_t most = 64; /* most rows at a time if they must be padded */
    return n_rows * row_bytes(LINEAR_MAX_PARTS, rank, k, true) +
           (n_rows < most ? n_rows : most) * row_bytes(0, 0, k, false);
}

enum status cuda_adapters(struct gpu_stream *s, const struct adapters_params *p,
                          const struct cuda_adapter_rows *rows, const struct cuda_room *room,
                          uint32_t n_multiprocessors, struct error *err)
{
    const bool is_aligned = grouped_is_aligned(p->x.data, p->x.stride, p->k);
    const uint64_t fit = room->n_bytes / row_bytes(p->n_parts, p->most_rank, p->k, is_aligned);
    if (rows->most_few == 0 || p->n_parts == 0)
        return STATUS_OK; /* CUDA refuses an empty grid */
    if (fit == 0)
        return error_set(err, STATUS_NO_MEMORY,
                         "a row of adapters with rank %u and %u inputs does not fit into %llu "
                         "bytes of scratch memory",
                         p->most_rank, p->k, (unsigned long long)room->n_bytes);
    TRY(gpu_enter(s->device, err));
    for (uint32_t begin = 0, n; begin < rows->n_rows; begin += n) {
        n = rows->n_rows - begin < fit ? rows->n_rows - begin : (uint32_t)fit;
        const struct turn t = {p,
                               rows,
                               begin,
                               n,
                               rounded(p->most_rank, 16),
                               static_cast<uint16_t *>(room->ptr),
                               n_multiprocessors,
                               s};
        TRY(run_turn(t, is_aligned, err));
    }
    return STATUS_OK;
}
