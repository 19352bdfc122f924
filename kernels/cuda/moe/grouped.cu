/* Implements the helpers of grouped products: padding of rows to whole pieces of 16 bytes, and
 * the tables of experts and heads that the kernels read. */
#include "kernels/cuda/moe/grouped.cuh"

namespace
{
constexpr uint32_t PAD_THREADS = 128;

/* A block has one row of a group, and a thread moves 2 bytes at a time, because the rows are not
 * aligned. */
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
                         "CUDA kernels do not support experts or heads whose inputs are reordered "
                         "(act-order): use --device cpu, or a checkpoint made without act-order");
    if (!gpu_matrix_of_weight(w, &out->w))
        return error_set(err, STATUS_UNSUPPORTED,
                         "there is no CUDA kernel for a matrix of %s with %u outputs and %u inputs",
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
