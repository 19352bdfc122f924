/* Implements the CUDA backend's device: its memory, its stream, its first error, and the table
 * of operators (struct ops). The worker opens the device and calls operators from one thread;
 * each operator enqueues kernels on the device's stream.
 * Invariants: after the first failure, no more work is enqueued; `sync` and `cuda_device_query`
 * report that error. Memory of the device never exceeds `limit_bytes`. Recordings refer to
 * memory by address, so they are dropped before memory is freed. */
#include <stdio.h>

#include "common/base/mem.h"
#include "common/host/host.h"
#include "kernels/cuda/attention/abi.h"
#include "kernels/cuda/backend/attention.h"
#include "kernels/cuda/backend/enqueue.h"
#include "kernels/cuda/backend/latent.h"
#include "kernels/cuda/backend/linear.h"
#include "kernels/cuda/backend/moe.h"
#include "kernels/cuda/backend/pack.h"
#include "kernels/cuda/backend/record.h"
#include "kernels/cuda/backend/rows.h"
#include "kernels/cuda/backend/sampler.h"
#include "kernels/cuda/backend/staging.h"
#include "kernels/cuda/linear/abi.h"
#include "kernels/cuda/rows/abi.h"

enum { LOGITS_ROWS = 256, MAX_THREADS = 64 };

/* ---- failures ---- */

static enum status told(const struct cuda_device *x, struct error *err)
{
    if (x->failed != STATUS_OK && err)
        *err = x->error;
    return x->failed;
}

static enum status wait_for_all(struct cuda_device *x, struct error *err)
{
    struct error own;
    if (x->failed == STATUS_OK)
        cuda_note(x, gpu_stream_sync(x->stream, &own), &own);
    return told(x, err);
}

/* Clears STATUS_LIMIT after it was reported. Nothing of the pass that was too large, or of later
 * passes, was enqueued. The caller has been informed that the step failed, and the next step may
 * be smaller. */
static enum status forgive_limit(struct cuda_device *x, enum status s)
{
    if (s == STATUS_LIMIT)
        x->failed = STATUS_OK;
    return s;
}

static enum status cuda_sync(struct device *d, struct error *err)
{
    return forgive_limit(cuda_of(d), wait_for_all(cuda_of(d), err));
}

enum status cuda_device_query(struct device *d, struct error *err)
{
    struct cuda_device *x = cuda_of(d);
    struct error own;
    enum status s = x->failed == STATUS_OK ? gpu_stream_query(x->stream, &own) : STATUS_OK;
    if (s == STATUS_AGAIN)
        return s;
    cuda_note(x, s, &own);
    return forgive_limit(x, told(x, err));
}

/* ---- memory ---- */

/* Sets limit_bytes: the process's part of the device's memory, minus the memory that is in use
 * already. */
static enum status reserve(struct cuda_device *x, double utilization, struct error *err)
{
    uint64_t n_free, total = x->info.memory_bytes;
    if (!(utilization > 0 && utilization <= 1))
        return error_set(err, STATUS_INVALID,
                         "the fraction %g of the device's memory is not between 0 and 1 "
                         "(--gpu-memory-utilization)",
                         utilization);
    TRY(gpu_memory_free(x->gpu, &n_free, err));
    uint64_t taken = total > n_free ? total - n_free : 0;
    uint64_t part = (uint64_t)(utilization * (double)total);
    x->limit_bytes = part > taken ? part - taken : 0;
    if (x->limit_bytes > 0)
        return STATUS_OK;
    return error_set(
        err, STATUS_NO_MEMORY,
        "%s has %.1f GiB of memory, %.1f GiB of it free: nothing is left of the fraction %g that "
        "this worker may use. Stop other programs on the GPU or raise --gpu-memory-utilization",
        x->info.name, (double)total / (1 << 30), (double)n_free / (1 << 30), utilization);
}

static uint64_t cuda_available_bytes(const struct device *d)
{
    const struct cuda_device *x = (const struct cuda_device *)d;
    return x->limit_bytes - x->used_bytes;
}

static void *cuda_alloc(struct device *d, uint64_t n_bytes)
{
    struct cuda_device *x = cuda_of(d);
    void *ptr = NULL;
    if (n_bytes > cuda_available_bytes(d))
        return NULL;
    if (gpu_alloc(x->gpu, n_bytes > 0 ? n_bytes : 1, &ptr, NULL) != STATUS_OK)
        return NULL;
    x->used_bytes += n_bytes;
    return ptr;
}

static void cuda_release(struct device *d, void *ptr, uint64_t n_bytes)
{
    struct cuda_device *x = cuda_of(d);
    if (!ptr)
        return;
    cuda_backend_record_drop(d); /* recordings refer to the memory by its address */
    gpu_release(x->gpu, ptr);
    x->used_bytes -= n_bytes;
}

static void *cuda_alloc_host(struct device *d, uint64_t n_bytes)
{
    struct error err;
    void *ptr = NULL;
    return gpu_host_alloc(cuda_of(d)->gpu, n_bytes, &ptr, &err) == STATUS_OK ? ptr : NULL;
}

static void cuda_release_host(struct device *d, void *ptr)
{
    gpu_host_release(cuda_of(d)->gpu, ptr);
}

/* cuda_write and cuda_read return when the caller may change the host memory. */
static void cuda_write(struct device *d, void *to, const void *host, uint64_t n_bytes)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (n_bytes == 0 || !cuda_goes_on(x))
        return;
    cuda_note(x, gpu_copy_to_device(x->stream, to, host, n_bytes, &err), &err);
    (void)!wait_for_all(x, &err); /* x keeps the error */
}

static enum status cuda_read(struct device *d, void *host, const void *from, uint64_t n_bytes,
                             struct error *err)
{
    struct cuda_device *x = cuda_of(d);
    struct error own;
    if (n_bytes > 0 && cuda_goes_on(x))
        cuda_note(x, gpu_copy_from_device(x->stream, host, from, n_bytes, &own), &own);
    return wait_for_all(x, err);
}

static void cuda_copy(struct device *d, void *to, const void *from, uint64_t n_bytes)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (n_bytes > 0 && cuda_goes_on(x))
        cuda_note(x, gpu_copy_on_device(x->stream, to, from, n_bytes, &err), &err);
}

static uint64_t cuda_scratch_bytes(const struct device *d, const struct scratch_shape *s)
{
    uint64_t most = cuda_linear_scratch_bytes(s);
    const uint64_t others[] = {cuda_attention_scratch_bytes(s), cuda_moe_scratch_bytes(s),
                               cuda_latent_scratch_bytes((const struct cuda_device *)d, s)};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        most = others[i] > most ? others[i] : most;
    return most;
}

static enum status cuda_check(const struct device *d, const struct scratch_shape *s,
                              struct error *err)
{
    if (s->hidden > CUDA_NORM_MAX_DIM)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the model's hidden width is %u; the GPU's norm kernels support at most "
                         "%u. Use another model, or --device cpu",
                         s->hidden, CUDA_NORM_MAX_DIM);
    return cuda_attention_check(s->head_dim, s->v_dim, s->is_latent, err);
}

static void cuda_use_scratch(struct device *d, void *ptr, uint64_t n_bytes)
{
    cuda_of(d)->scratch = (struct gpu_scratch){ptr, n_bytes};
}

/* ---- the host's threads ---- */

struct loop {
    void (*fn)(void *ctx, uint32_t i);
    void *ctx;
};
static void loop_task(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    const struct loop *l = ctx;
    l->fn(l->ctx, i_task);
}
static void cuda_parallel_for(struct device *d, uint32_t n, void (*fn)(void *ctx, uint32_t i),
                              void *ctx)
{
    pool_run(cuda_of(d)->pool, n, loop_task, &(struct loop){fn, ctx});
}

/* ---- passes ---- */

static void cuda_begin(struct device *d)
{
    struct cuda_device *x = cuda_of(d);
    x->n_row_groups = 0;
    x->may_be_recorded = false;
    cuda_latent_begin(x);
    x->adapters = (struct cuda_adapter_rows){0};
    cuda_staging_begin(x);
}

/* ---- properties ---- */

static uint32_t cuda_isa_level(const struct device *d)
{
    return 0;
}

static enum status cuda_set_isa_level(struct device *d, uint32_t level, struct error *err)
{
    if (level == 0)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "cannot set ISA level %u: a GPU rank has only level 0. Report this bug",
                     level);
}

static const char *cuda_isa_name(const struct device *d)
{
    return ((const struct cuda_device *)d)->isa;
}

static void cuda_close(struct device *d)
{
    struct cuda_device *x = cuda_of(d);
    struct error err;
    if (!x)
        return;
    if (x->stream)
        (void)!gpu_stream_sync(x->stream, &err); /* an error cannot be returned here */
    cuda_records_close(x);
    cuda_latent_free(x);
    gpu_linear_free(x->linear);
    cuda_packer_free(x);
    cuda_staging_close(x);
    gpu_stream_free(x->stream);
    gpu_device_close(x->gpu);
    pool_free(x->pool);
    mem_free(x);
}

static const struct ops cuda_ops = {
    .name = "cuda",
    .activation_bytes = sizeof(uint16_t), /* activations are bfloat16 */
    .logits_rows = LOGITS_ROWS,
    .has_plain_experts = true,
    .close = cuda_close,
    .isa_level = cuda_isa_level,
    .set_isa_level = cuda_set_isa_level,
    .isa_name = cuda_isa_name,
    .check = cuda_check,
    .memory = {.alloc = cuda_alloc,
               .release = cuda_release,
               .alloc_host = cuda_alloc_host,
               .release_host = cuda_release_host,
               .write = cuda_write,
               .read = cuda_read,
               .available_bytes = cuda_available_bytes,
               .scratch_bytes = cuda_scratch_bytes,
               .use_scratch = cuda_use_scratch,
               .copy = cuda_copy},
    .loading = {.weight_bytes = cuda_backend_weight_bytes,
                .weight_pack = cuda_backend_weight_pack,
                .parallel_for = cuda_parallel_for,
                .table_bytes = cuda_backend_table_bytes,
                .expert_table = cuda_backend_expert_table,
                .head_table = cuda_backend_head_table},
    .adapters = {.upload = cuda_backend_upload_adapters,
                 .bytes = cuda_backend_adapter_bytes,
                 .table = cuda_backend_adapter_table,
                 .add = cuda_backend_add_adapters},
    .pass = {.begin = cuda_begin,
             .upload = cuda_backend_upload,
             .upload_rows = cuda_backend_upload_rows,
             .sync = cuda_sync},
    .recording = {.begin = cuda_backend_record,
                  .end = cuda_backend_record_end,
                  .takes = cuda_backend_can_record,
                  .drop = cuda_backend_record_drop,
                  .bytes = cuda_backend_record_bytes},
    .math = {.take_last = cuda_backend_take_last,
             .embed = cuda_backend_embed,
             .gather = cuda_backend_gather,
             .add_norm = cuda_backend_add_norm,
             .rope_kv = cuda_backend_rope_kv,
             .heads = cuda_backend_heads,
             .latent = cuda_backend_latent,
             .norm = cuda_backend_norm,
             .sum_squares = cuda_backend_sum_squares,
             .clear = cuda_backend_clear,
             .linear = cuda_backend_linear,
             .linear_gated = cuda_backend_linear_gated,
             .rope_table = cuda_backend_rope_table,
             .rope = cuda_backend_rope,
             .kv_write = cuda_backend_kv_write,
             .attention = cuda_backend_attention,
             .gated = cuda_backend_gated,
             .add = cuda_backend_add,
             .route = cuda_backend_route,
             .moe = cuda_backend_moe,
             .copy_heads = cuda_backend_copy_heads,
             .gate_rows = cuda_backend_gate_rows,
             .softcap = cuda_backend_softcap,
             .logits_top = cuda_backend_logits_top,
             .sum_exp = cuda_backend_sum_exp},
};

static enum status open_parts(struct cuda_device *x, const struct cuda_device_options *o,
                              struct error *err)
{
    uint32_t n_threads = o->n_threads > 0 ? o->n_threads : host_cpus();
    TRY(gpu_info(o->ordinal, &x->info, err));
    snprintf(x->isa, sizeof x->isa, "sm_%u", x->info.capability);
    TRY(gpu_device_open(o->ordinal, &x->gpu, err));
    (void)gpu_launch_early(x->gpu, !o->no_early_launch);
    x->expand_rows = o->expand_rows;
    TRY(reserve(x, o->utilization, err));
    TRY(gpu_stream_new(x->gpu, &x->stream, err));
    TRY(gpu_linear_new(x->stream, &x->info, &x->linear, err));
    TRY(cuda_staging_open(x, o->staging_bytes, err));
    return pool_new(n_threads < MAX_THREADS ? n_threads : MAX_THREADS, &x->pool, err);
}

enum status cuda_device_open(const struct cuda_device_options *o, struct device **out,
                             struct error *err)
{
    struct cuda_device *x = mem_zalloc(sizeof *x);
    *out = NULL;
    x->base.ops = &cuda_ops;
    enum status s = open_parts(x, o, err);
    if (s != STATUS_OK) {
        cuda_close(&x->base);
        return s;
    }
    *out = &x->base;
    return STATUS_OK;
}

enum status cuda_measure_open(struct device **out, struct error *err)
{
    struct cuda_device *x = mem_zalloc(sizeof *x);
    x->base.ops = &cuda_ops;
    snprintf(x->isa, sizeof x->isa, "cuda");
    *out = &x->base;
    return STATUS_OK;
}
