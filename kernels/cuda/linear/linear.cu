/* Implements products of few rows: converts the backend's arguments to those of gemm.cuh's
 * kernels. */
#include "kernels/cuda/linear/gemm_launch.cuh"
#include "kernels/cuda/linear/state.cuh"

/* OWN_SHARED_BYTES is the shared memory of a block that the ring must leave free. A kernel
 * declares 128 bytes itself, and since 8.0 the system takes 1 KiB of each block besides
 * (cuobjdump --dump-resource-usage: SHARED:1152). It is not documented whether
 * cudaFuncGetAttributes, from which launch_allow_shared computes a kernel's limit, counts that
 * KiB. This value is right in both cases. */
static constexpr uint32_t OWN_SHARED_BYTES = 2048;

enum status gpu_linear_new(struct gpu_stream *s, const struct gpu_info *info,
                           struct gpu_linear **out, struct error *err)
{
    void *arrived = nullptr;
    *out = nullptr;
    TRY(gpu_enter(s->device, err));
    TRY(gpu_alloc(s->device, LINEAR_COUNTERS * sizeof(uint32_t), &arrived, err));
    struct gpu_linear *l = static_cast<struct gpu_linear *>(mem_zalloc(sizeof *l));
    l->stream = s;
    l->n_multiprocessors = info->n_multiprocessors;
    l->shared_bytes = info->shared_bytes - OWN_SHARED_BYTES;
    l->arrived = static_cast<uint32_t *>(arrived);
    /* cuBLASLt is loaded here, so that a missing library is reported at the start and not at the
     * first long prompt */
    const enum status st = blas_new(&l->blas, err);
    if (st != STATUS_OK) {
        gpu_linear_free(l);
        return st;
    }
    *out = l;
    return STATUS_OK;
}

void gpu_linear_free(struct gpu_linear *l)
{
    if (!l)
        return;
    blas_free(l->blas);
    gpu_release(l->stream->device, l->arrived);
    mem_free(l);
}

static gemm_launch_fn *const launches[GPU_FORMAT_COUNT] = {
    gemm_launch_bf16,   gemm_launch_u4, gemm_launch_u4_min, gemm_launch_i8,
    gemm_launch_i8_min, gemm_launch_f8, gemm_launch_mx4,
};

static gemm_args args_of(const struct gpu_products *p)
{
    gemm_args a = {};
    a.n_parts = p->n_parts;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const struct gpu_product &from = p->parts[i];
        gemm_part &to = a.parts[i];
        to.codes = static_cast<const uint8_t *>(from.w.codes);
        to.scales = static_cast<const uint8_t *>(from.w.scales);
        to.bias = from.bias;
        to.out_stride = from.out.stride;
        to.n = from.w.n;
        to.first_tile = a.n_tiles;
        to.tile_bytes = from.w.tile_bytes;
        to.to_float = from.to_float;
        a.n_tiles += gpu_n_row_tiles(&from.w);
    }
    a.is_gated = p->is_gated;
    a.act = p->act;
    a.limit = p->limit;
    a.x_stride = p->x.stride;
    a.x_is_aligned = (uintptr_t)p->x.data % 16 == 0 && p->x.stride % 8 == 0;
    a.k = p->parts[0].w.k;
    a.group = p->parts[0].w.group;
    return a;
}

/* Sets the arguments for n_rows rows from `first` on. */
static void take_rows(const struct gpu_products *p, uint32_t first, uint32_t n_rows, gemm_args *a)
{
    a->n_rows = n_rows;
    a->x = static_cast<const uint16_t *>(p->x.data) + (size_t)first * p->x.stride;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const size_t at = (size_t)first * p->parts[i].out.stride;
        a->parts[i].out = static_cast<uint8_t *>(p->parts[i].out.data) +
                          at * (p->parts[i].to_float ? sizeof(float) : sizeof(uint16_t));
    }
}

enum status cuda_linear_few(struct gpu_linear *l, const struct gpu_products *p, struct error *err)
{
    if (p->n_parts == 0)
        return STATUS_OK;
    gemm_limits limits = {};
    limits.n_multiprocessors = l->n_multiprocessors;
    limits.shared_bytes = l->shared_bytes;
    limits.most_counters = LINEAR_COUNTERS;
    limits.partial_bytes = p->scratch_bytes;
    gemm_args a = args_of(p);
    a.partial = static_cast<float *>(p->scratch);
    a.arrived = l->arrived;
    TRY(gpu_enter(l->stream->device, err));
    uint32_t most = GPU_FEW_ROWS;
    for (uint32_t first = 0; first < p->n_rows;) {
        const uint32_t left = p->n_rows - first, n_rows = left < most ? left : most;
        take_rows(p, first, n_rows, &a);
        const cudaError_t e = launches[p->parts[0].w.format](a, limits, l->stream);
        if (e == cudaErrorInvalidConfiguration && most > 8) {
            most /= 2; /* the activations do not fit into this device's shared memory */
            continue;
        }
        TRY(gpu_check(e, "linear", err));
        first += n_rows;
    }
    return STATUS_OK;
}
