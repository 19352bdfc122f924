/* Computes the products of heads, in which every head has every row. */
#include "kernels/cuda/moe/grouped_run.cuh"

namespace
{
uint64_t heads_row_bytes(uint32_t n_heads, uint32_t k)
{
    return (uint64_t)n_heads * ((k + 7) / 8 * 8) * sizeof(uint16_t);
}

/* Pads the rows of all heads into the scratch. */
cudaError_t pad_heads(const struct gpu_stream *s, const struct heads_params *p, void *room,
                      struct grouped_args *a)
{
    uint16_t *to = static_cast<uint16_t *>(room);
    const uint32_t padded = (p->first->k + 7) / 8 * 8;
    const struct pad_args pad = {a->x,   to,        nullptr,    p->x.stride, p->in_stride,
                                 padded, a->n_rows, p->n_heads, p->first->k};
    a->x = to;
    a->x_stride = padded;
    a->x_group_stride = a->n_rows * padded;
    return grouped_pad(s, pad);
}
} // namespace

uint64_t cuda_heads_scratch(uint32_t n_rows, uint32_t n_heads, uint32_t k)
{
    const uint32_t most = 64; /* most rows that are padded at a time */
    return heads_row_bytes(n_heads, k) * (n_rows < most ? n_rows : most);
}

enum status cuda_heads(struct gpu_stream *s, const struct heads_params *p,
                       const struct cuda_room *room, uint32_t n_multiprocessors, struct error *err)
{
    const uint64_t row_bytes = heads_row_bytes(p->n_heads, p->first->k);
    const bool is_aligned =
        grouped_is_aligned(p->x.data, p->x.stride, p->first->k) && p->in_stride % 8 == 0;
    if (p->n_rows == 0 || p->n_heads == 0)
        return STATUS_OK; /* CUDA refuses an empty grid */
    const uint64_t fit = is_aligned ? p->n_rows : room->n_bytes / row_bytes;
    if (fit == 0)
        return error_set(
            err, STATUS_NO_MEMORY,
            "a row of %u heads with %u inputs does not fit into %llu bytes of scratch memory",
            p->n_heads, p->first->k, (unsigned long long)room->n_bytes);
    TRY(gpu_enter(s->device, err));
    for (uint32_t first = 0; first < p->n_rows;) {
        struct grouped_args a = {};
        const uint32_t left = p->n_rows - first;
        a.n_rows = left < fit ? left : (uint32_t)fit;
        a.x = static_cast<const uint16_t *>(p->x.data) + (size_t)first * p->x.stride;
        a.x_stride = p->x.stride;
        a.x_group_stride = p->in_stride;
        if (!is_aligned)
            TRY(gpu_check(pad_heads(s, p, room->ptr, &a), "heads: pad", err));
        a.table = static_cast<const char *>(p->table);
        a.table_stride = sizeof(struct grouped_matrix);
        a.n = p->first->n;
        a.k = p->first->k;
        a.n_groups = p->n_heads;
        a.tile_rows = grouped_tile_rows(a.n_rows);
        a.max_tiles = (a.n_rows + a.tile_rows - 1) / a.tile_rows * p->n_heads;
        a.n_parts = 1;
        a.outs[0] = {static_cast<uint16_t *>(p->out.data) + (size_t)first * p->out.stride,
                     p->out.stride};
        a.out_group_stride = p->out_stride;
        a.result = GROUPED_BF16;
        TRY(gpu_check(grouped_run(s, a, n_multiprocessors), "heads", err));
        first += a.n_rows;
    }
    return STATUS_OK;
}
