/* What adapters add: the rows of all adapters of a pass through two grouped products, down to each
 * adapter's rank into scratch, back up and added to where the rows are. An adapter is a group; the
 * groups and their tiles travel in the kernel's arguments, so nothing is copied to the device for
 * them, a few adapters at a time. A row belongs to one adapter: nobody else adds to it. */
#include "kernels/cuda/grouped.cuh"

extern "C" {
#include "kernels/cuda/cuda_moe.h"
}

namespace
{
uint32_t rounded(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

/* Adapters first .. first + n - 1 of the pass, of the list's rows begin .. end - 1. */
struct batch {
    const struct lora_params *p;
    uint32_t first, n, begin, end, low_stride;
    uint16_t *low;
    uint32_t n_multiprocessors;
    const struct gpu_stream *stream;
};

struct range {
    uint32_t begin, end;
};

/* Of the batch's rows those of an adapter. */
struct range rows_of(const struct batch &b, uint32_t i)
{
    const struct lora_group *g = &b.p->groups[b.first + i];
    const uint32_t begin = g->first > b.begin ? g->first : b.begin;
    const uint32_t end = g->first + g->n_rows < b.end ? g->first + g->n_rows : b.end;
    return {begin - b.begin, end > begin ? end - b.begin : begin - b.begin};
}

/* In one launch, or in several when the tiles are more than travel with one. */
cudaError_t run_tiles(const struct batch &b, struct grouped_args *a)
{
    cudaError_t e = cudaSuccess;
    a->max_tiles = 0;
    for (uint32_t i = 0; i < b.n; i++) {
        const struct range r = rows_of(b, i);
        for (uint32_t row = r.begin; row < r.end && e == cudaSuccess; row += a->tile_rows) {
            const uint32_t left = r.end - row;
            a->inline_tiles[a->max_tiles++] = {i, row, left < a->tile_rows ? left : a->tile_rows};
            if (a->max_tiles < GROUPED_INLINE_TILES)
                continue;
            e = grouped_run(b.stream, *a, b.n_multiprocessors);
            a->max_tiles = 0;
        }
    }
    return e != cudaSuccess || a->max_tiles == 0 ? e
                                                 : grouped_run(b.stream, *a, b.n_multiprocessors);
}

uint32_t most_rows(const struct batch &b)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < b.n; i++) {
        const struct range r = rows_of(b, i);
        most = r.end - r.begin > most ? r.end - r.begin : most;
    }
    return most;
}

enum status fill(const struct batch &b, bool is_up, struct grouped_args *a, struct error *err)
{
    for (uint32_t i = 0; i < b.n; i++) {
        const struct lora_group *g = &b.p->groups[b.first + i];
        const struct weight *w = is_up ? g->b : g->a;
        TRY(grouped_matrix_fill(w, &a->inline_groups[i], err));
        a->inline_scales[i] = g->scale;
        a->n = w->n > a->n ? w->n : a->n;
        a->k = w->k > a->k ? w->k : a->k;
    }
    /* A rank of a few tiles would leave most of a large block without work. */
    a->tile_rows = grouped_tile_rows(most_rows(b));
    if (a->n <= 64 && a->tile_rows == GROUPED_LARGE_ROWS)
        a->tile_rows = GROUPED_SMALL_ROWS;
    return STATUS_OK;
}

enum status run_batch(const struct batch &b, const uint16_t *x, uint32_t x_stride,
                      const uint32_t *x_rows, struct error *err)
{
    struct grouped_args down = {}, up = {};
    TRY(fill(b, false, &down, err));
    down.x = x;
    down.x_stride = x_stride;
    down.x_rows = x_rows;
    down.out = b.low;
    down.out_stride = b.low_stride;
    down.result = GROUPED_BF16;
    down.fills = true;
    TRY(gpu_check(run_tiles(b, &down), "lora: down", err));
    TRY(fill(b, true, &up, err));
    up.x = b.low;
    up.x_stride = b.low_stride;
    up.out = b.p->out.data;
    up.out_stride = b.p->out.stride;
    up.out_rows = b.p->rows + b.begin;
    up.result = b.p->to_float ? GROUPED_ADD_FLOAT : GROUPED_ADD;
    return gpu_check(run_tiles(b, &up), "lora: up", err);
}

/* What a turn needs of scratch for a row: its low part, and its inputs when they have to be padded.
 */
uint64_t row_bytes(uint32_t rank, uint32_t k, bool is_aligned)
{
    return (rounded(rank, 16) + (is_aligned ? 0ull : rounded(k, 8))) * sizeof(uint16_t);
}
} // namespace

uint64_t cuda_lora_scratch(uint32_t n_rows, uint32_t rank, uint32_t k)
{
    const uint32_t most = 64; /* at a time, when they have to be padded */
    return n_rows * row_bytes(rank, k, true) +
           (n_rows < most ? n_rows : most) * row_bytes(rank, k, false);
}

enum status cuda_lora(struct gpu_stream *s, const struct lora_params *p,
                      const struct cuda_room *room, uint32_t n_multiprocessors, struct error *err)
{
    uint32_t n_rows = 0, rank = 0;
    if (p->n_groups == 0)
        return STATUS_OK;
    for (uint32_t i = 0; i < p->n_groups; i++) {
        const struct lora_group *g = &p->groups[i];
        n_rows = g->first + g->n_rows > n_rows ? g->first + g->n_rows : n_rows;
        rank = g->a->n > rank ? g->a->n : rank;
    }
    const uint32_t k = p->groups[0].a->k, padded = rounded(k, 8);
    const bool is_aligned = grouped_is_aligned(p->x.data, p->x.stride, k);
    const uint64_t fit = room->n_bytes / row_bytes(rank, k, is_aligned);
    if (n_rows > 0 && fit == 0)
        return error_set(err, STATUS_NO_MEMORY,
                         "adapters of rank %u and %u inputs: %llu bytes of scratch are too few for "
                         "a row",
                         rank, k, (unsigned long long)room->n_bytes);
    TRY(gpu_enter(s->device, err));
    uint16_t *low = static_cast<uint16_t *>(room->ptr);
    for (uint32_t begin = 0, n; begin < n_rows; begin += n) {
        const uint16_t *x = static_cast<const uint16_t *>(p->x.data);
        n = n_rows - begin < fit ? n_rows - begin : (uint32_t)fit;
        uint16_t *copy = low + (size_t)n * rounded(rank, 16);
        const struct pad_args pad = {x, copy, p->rows + begin, p->x.stride, 0, padded, n, 1, k};
        if (!is_aligned)
            TRY(gpu_check(grouped_pad(s, pad), "lora: pad", err));
        for (uint32_t first = 0; first < p->n_groups; first += GROUPED_INLINE_GROUPS) {
            const uint32_t left = p->n_groups - first;
            const struct batch b = {p,
                                    first,
                                    left < GROUPED_INLINE_GROUPS ? left : GROUPED_INLINE_GROUPS,
                                    begin,
                                    begin + n,
                                    rounded(rank, 16),
                                    low,
                                    n_multiprocessors,
                                    s};
            TRY(run_batch(b, is_aligned ? x : copy, is_aligned ? p->x.stride : padded,
                          is_aligned ? p->rows + begin : nullptr, err));
        }
    }
    return STATUS_OK;
}
