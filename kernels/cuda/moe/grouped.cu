/* Grouped products need this around them: rows padded to whole pieces of 16 bytes, tables of
 * experts and heads as the kernels read them, and the products of heads, where every head has every
 * row. */
#include "kernels/cuda/moe/grouped.cuh"

namespace
{
constexpr uint32_t PAD_THREADS = 128;

/* A block for a row of a group; 2 bytes a thread, side by side: rows that lie askew are the
 * exception. */
__global__ __launch_bounds__(PAD_THREADS) void pad_kernel(const pad_args a)
{
    const uint32_t row = blockIdx.x, group = blockIdx.y;
    dependency_wait();
    dependency_launch();
    const uint16_t *x =
        a.x + (size_t)grouped_row(a.rows, row) * a.x_stride + (size_t)group * a.group_stride;
    uint16_t *to = a.to + ((size_t)group * a.n_rows + row) * a.to_stride;
    for (uint32_t i = threadIdx.x; i < a.to_stride; i += PAD_THREADS)
        to[i] = i < a.k ? x[i] : (uint16_t)0;
}

enum status matrix_fill(const struct weight *w, const float *bias, struct grouped_matrix *out,
                        struct error *err)
{
    *out = {};
    if (w->order)
        return error_set(err, STATUS_UNSUPPORTED,
                         "experts or heads whose inputs have an order of their own (act-order) are "
                         "not run on CUDA");
    if (!gpu_matrix_of_weight(w, &out->w))
        return error_set(err, STATUS_UNSUPPORTED, "no CUDA kernel for a matrix of %s, %u x %u",
                         dtype_traits(w->dtype).name, w->n, w->k);
    out->bias = bias;
    return STATUS_OK;
}
} // namespace

cudaError_t grouped_pad(const struct gpu_stream *s, const struct pad_args &a)
{
    return launch_kernel(s, pad_kernel, dim3(a.n_rows, a.n_groups), dim3(PAD_THREADS), 0, a);
}

enum status grouped_matrix_fill(const struct weight *w, struct grouped_matrix *out,
                                struct error *err)
{
    return matrix_fill(w, nullptr, out, err);
}

uint64_t cuda_expert_table_bytes(uint32_t n)
{
    return n * sizeof(struct gpu_expert);
}

enum status cuda_expert_table_fill(const struct moe_expert *experts, uint32_t n, void *out,
                                   struct error *err)
{
    struct gpu_expert *to = static_cast<struct gpu_expert *>(out);
    for (uint32_t i = 0; i < n; i++) {
        const struct moe_expert *x = &experts[i];
        TRY(matrix_fill(x->gate, x->gate_bias, &to[i].gate, err));
        TRY(matrix_fill(x->up, x->up_bias, &to[i].up, err));
        TRY(matrix_fill(x->down, x->down_bias, &to[i].down, err));
    }
    return STATUS_OK;
}

uint64_t cuda_head_table_bytes(uint32_t n)
{
    return n * sizeof(struct grouped_matrix);
}

enum status cuda_head_table_fill(const struct weight *const *w, uint32_t n, void *out,
                                 struct error *err)
{
    struct grouped_matrix *to = static_cast<struct grouped_matrix *>(out);
    for (uint32_t i = 0; i < n; i++)
        TRY(matrix_fill(w[i], nullptr, &to[i], err));
    return STATUS_OK;
}

namespace
{
uint64_t heads_row_bytes(uint32_t n_heads, uint32_t k)
{
    return (uint64_t)n_heads * ((k + 7) / 8 * 8) * sizeof(uint16_t);
}

/* Rows of all heads, padded in the room. */
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
    const uint32_t most = 64; /* at a time */
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
        return error_set(err, STATUS_NO_MEMORY,
                         "%u heads of %u inputs: %llu bytes of scratch are too few for a row",
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
