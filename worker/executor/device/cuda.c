/* Describes a GPU as a device that runs a model (docs/develop/gpu.md): the entries of `struct
 * executor_device` that differ from a CPU. device/open.c calls it on the loop thread,
 * device/model.c through the table. An opened device is passed to the executor, which closes the
 * device. No CUDA type is used here, so the file compiles without the CUDA toolchain. A build
 * without CUDA returns STATUS_UNSUPPORTED when the options select a GPU. */
#include "worker/executor/device/cuda.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device/abi.h"
#include "worker/executor/device/gpu_log.h"
#include "worker/executor/device/model.h"
#include "worker/executor/ranks.h"
#include "worker/executor/step/device_sample.h"
#include "worker/kv/chunks.h"
#include "worker/setup/options.h"

/* DRAFT_MAX_SEQS is the largest number of sequences in a step with draft tokens. Rows are cheap
 * on a GPU while a step waits for the weights to be read (bench/results/speculation.md has the
 * cost of a row on a CPU). */
enum { DRAFT_MAX_SEQS = 32 };
/* PASS_ROWS_LARGE and PASS_ROWS are numbers of rows of a pass. A prompt's chunk runs in one pass
 * when the head plans chunks of this size. */
enum { PASS_ROWS_LARGE = 8192, PASS_ROWS = 2048 };
#define LARGE_BYTES 70000000000ull
/* RESERVED_BYTES is the device memory reserved for later growth: recorded passes, workspaces of
 * libraries. */
#define RESERVED_BYTES (512ull << 20)

static enum status choose(const struct worker_options *o, struct gpu_info *info, uint32_t *ordinal,
                          struct error *err)
{
    *ordinal = o->gpu > 0 ? (uint32_t)o->gpu : 0;
    TRY(gpu_info(*ordinal, info, err));
    if (o->gpu < 0 && o->ordinal > 0)
        *ordinal = (uint32_t)o->ordinal % info->n_devices;
    return *ordinal == 0 ? STATUS_OK : gpu_info(*ordinal, info, err);
}

enum status executor_cuda_look(const struct worker_options *o, struct error *err)
{
    struct gpu_info info;
    uint32_t ordinal;
    if (o->device != WORKER_DEVICE_CUDA)
        return STATUS_OK;
    enum status s = choose(o, &info, &ordinal, err);
    return s == STATUS_OK ? s : error_prefix(err, s, "--device cuda");
}

/* Returns true when the options lead to a GPU if there is one. */
static bool may_use(const struct worker_options *o)
{
    return o->device == WORKER_DEVICE_CUDA ||
           (o->device == WORKER_DEVICE_AUTO && gpu_is_built() && !worker_options_are_null(o));
}

enum status executor_cuda_warm(const struct worker_options *o, bool *is_made, struct error *err)
{
    static struct device *kept; /* its context and libraries are those of the whole process */
    struct gpu_info info;
    struct cuda_device_options c = {.utilization = 1, .staging_bytes = 64 << 10, .n_threads = 1};
    *is_made = false;
    if (!may_use(o))
        return STATUS_OK;
    enum status s = choose(o, &info, &c.ordinal, err);
    if (s != STATUS_OK) /* the worker then uses the CPU */
        return o->device == WORKER_DEVICE_AUTO && o->gpu < 0 ? STATUS_OK : s;
    TRY(cuda_device_open(&c, &kept, err));
    *is_made = true;
    return STATUS_OK;
}

void executor_cuda_pci(const struct worker_options *o, char *out, size_t size)
{
    struct gpu_info info;
    uint32_t ordinal;
    bool is_asked = o->numa_node && strcmp(o->numa_node, "auto") == 0;
    out[0] = '\0';
    if (is_asked && may_use(o) && choose(o, &info, &ordinal, NULL) == STATUS_OK)
        snprintf(out, size, "%s", info.pci);
}

enum status executor_cuda_find(const struct worker_options *o, struct executor_found *out,
                               struct error *err)
{
    struct gpu_info info;
    uint64_t begin_ns = clock_mono_ns();
    TRY(choose(o, &info, &out->ordinal, err));
    out->utilization = o->gpu_memory_utilization;
    const struct cuda_device_options c = {.ordinal = out->ordinal,
                                          .utilization = out->utilization,
                                          .n_threads = (uint32_t)o->threads,
                                          .no_early_launch = o->no_early_launch};
    enum status s = cuda_device_open(&c, &out->device, err);
    out->open_ns = clock_mono_ns() - begin_ns;
    return s;
}

static uint64_t told_bytes(uint32_t tp, uint32_t pp)
{
    return EXECUTOR_TELL_BYTES + collectives_gpu_bytes(tp, pp);
}

void cuda_engine_setup(struct engine_setup *s, uint64_t memory_bytes)
{
    if (!s->kv_dtype_set)
        s->kv_dtype = DTYPE_BF16;
    s->kv_dtype_set = true;
    s->kv_takes_all = true;
    s->reserved_bytes = RESERVED_BYTES;
    s->told_bytes = told_bytes;
    s->pass_rows = memory_bytes >= LARGE_BYTES ? PASS_ROWS_LARGE : PASS_ROWS;
}

static enum status cuda_setup(const struct worker_options *o, const struct executor_found *found,
                              struct engine_setup *s, struct error *err)
{
    struct gpu_info info;
    TRY(gpu_info(found->ordinal, &info, err));
    cuda_engine_setup(s, info.memory_bytes);
    s->is_eager = o->enforce_eager;
    return STATUS_OK;
}

static uint64_t cuda_memory_bytes(const struct executor_model *x)
{
    struct gpu_info info;
    struct error err;
    return gpu_info(x->found.ordinal, &info, &err) == STATUS_OK ? info.memory_bytes : 0;
}

static void cuda_name(const struct executor_model *x, char *out, size_t size)
{
    struct gpu_info info;
    struct error err;
    bool known = gpu_info(x->found.ordinal, &info, &err) == STATUS_OK;
    snprintf(out, size, "%.100s (GPU %u, %s)", known ? info.name : "a GPU", x->found.ordinal,
             x->engine->device->ops->isa_name(x->engine->device));
}

static void cuda_place(const struct executor_model *x, char *out, size_t size)
{
    struct gpu_info info;
    struct error err;
    bool known = gpu_info(x->found.ordinal, &info, &err) == STATUS_OK;
    snprintf(out, size, "%s", known ? info.pci : "");
}

static enum status cuda_query(struct executor_model *x, struct error *err)
{
    return cuda_device_query(x->found.device, err);
}

static enum status cuda_open_sampler(struct executor_model *x, struct gpu_sampler **out,
                                     struct error *err)
{
    const struct gpu_sampler_options o =
        executor_device_sampler_options(x->engine->device, x->engine->config.vocab_size);
    return gpu_sampler_open(x->engine->device, &o, out, err);
}

/* ---- KV blocks on their way to and from other replicas ---- */

struct copies {
    struct kv_copies base;
    struct cuda_copies *gpu;
};

static enum status to_host(struct kv_copies *c, void *host, const void *device, uint64_t n_bytes,
                           struct error *err)
{
    return cuda_copies_to_host(((struct copies *)c)->gpu, host, device, n_bytes, err);
}

static enum status to_device(struct kv_copies *c, void *device, const void *host, uint64_t n_bytes,
                             struct error *err)
{
    return cuda_copies_to_device(((struct copies *)c)->gpu, device, host, n_bytes, err);
}

static enum status sync_copies(struct kv_copies *c, struct error *err)
{
    return cuda_copies_sync(((struct copies *)c)->gpu, err);
}

static void close_copies(struct kv_copies *c)
{
    cuda_copies_close(((struct copies *)c)->gpu);
    mem_free(c);
}

static enum status cuda_open_copies(struct executor_model *x, struct kv_copies **out,
                                    struct error *err)
{
    struct cuda_copies *gpu;
    TRY(cuda_copies_open(x->engine->device, KV_CHUNK_BYTES, &gpu, err));
    struct copies *c = mem_zalloc(sizeof *c);
    c->gpu = gpu;
    c->base = (struct kv_copies){
        .to_host = to_host, .to_device = to_device, .sync = sync_copies, .close = close_copies};
    for (uint32_t i = 0; i < CUDA_COPIES_BUFFERS; i++)
        c->base.buffers[i] = cuda_copies_buffer(gpu, i);
    *out = &c->base;
    return STATUS_OK;
}

static const struct executor_device cuda = {.kind = DEVICE_CUDA,
                                            .activations = "bfloat16",
                                            .draft_max_seqs = DRAFT_MAX_SEQS,
                                            .setup = cuda_setup,
                                            .memory_bytes = cuda_memory_bytes,
                                            .name = cuda_name,
                                            .place = cuda_place,
                                            .query = cuda_query,
                                            .say_loaded = gpu_log_start,
                                            .ranks = &ranks_gpu,
                                            .open_sampler = cuda_open_sampler,
                                            .open_copies = cuda_open_copies};

enum status executor_cuda_open(const struct worker_options *o, const struct executor_found *found,
                               struct executor **out, struct error *err)
{
    return executor_model_open(&cuda, found, o, out, err);
}
