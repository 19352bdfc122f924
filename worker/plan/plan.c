/* Computes the sizes behind `cox plan`: makes an engine for each rank of a replica, and measures
 * the engine without loading it. plan_main.c calls plan_make for this machine. shape.c calls
 * plan_foresee for GPUs that this machine does not have. The model's config.json or GGUF header
 * is read, and the result is a `struct plan`. Invariants: no weight is read and nothing large is
 * allocated. Engines and the device are closed before the functions return. The plan owns its
 * strings and ranks. One thread uses it. */
#include "worker/plan/plan.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/host/host.h"
#include "common/model/info/open.h"
#include "kernels/cuda/cuda.h"
#include "worker/engine/engine.h"
#include "worker/executor/device/cuda.h"
#include "worker/executor/device/engine_setup.h"
#include "worker/executor/step/device_sample.h"
#include "worker/executor/step/samplers.h"

/* LOGIT_BYTES and SCRATCH_BYTES are estimates for a GPU: bytes per logit (the number and data
 * for sampling), and scratch memory that does not depend on the model. They were counted with
 * the kernels' own functions (tests/e2e/test_plan_gpus.py). */
enum { LOGIT_BYTES = 12 };
#define SCRATCH_BYTES (128ull << 20)

/* ---- one rank ---- */

static uint64_t total_of(const struct plan_rank *r)
{
    return r->weights_bytes + r->activation_bytes + r->comm_bytes + r->lora_bytes + r->kv_bytes;
}

/* Computes the blocks that a worker with that much memory takes by default, and the most that
 * would fit. */
static void size_kv(struct plan_rank *r, struct engine *e, uint64_t memory_bytes)
{
    struct kv_group most[PROGRAM_MAX_KV_GROUPS];
    struct error err;
    uint64_t samplers = r->activation_bytes - e->activation_bytes;
    uint64_t available = memory_bytes > samplers ? memory_bytes - samplers : 0;
    r->n_kv_groups = e->program->n_kv_groups;
    r->fits = engine_size_kv(e, &(struct engine_beside){0}, available, &r->reason) == STATUS_OK;
    memcpy(r->kv_groups, e->kv_groups, sizeof r->kv_groups);
    r->kv_bytes = r->fits ? e->kv_bytes : 0;
    /* the sizes of blocks are known even after an error */
    for (uint32_t i = 0; i < r->n_kv_groups && !r->fits; i++)
        r->kv_groups[i] =
            (struct kv_group){.window_tokens = e->program->kv_groups[i].window,
                              .block_tokens = e->kv_shape.block_tokens,
                              .bytes_per_block = kv_store_block_bytes(e->program, &e->kv_shape, i)};
    struct kv_shape all = e->kv_shape;
    /* available_bytes is 0 when the model without KV cache does not fit */
    all.memory_bytes = all.available_bytes;
    all.n_blocks = 0;
    if (all.memory_bytes == 0)
        return;
    bool one = kv_store_size(e->program, &all, most, &err) == STATUS_OK;
    for (uint32_t i = 0; i < r->n_kv_groups; i++)
        if (one)
            r->most_blocks[i] = most[i].n_blocks;
        else if (r->n_kv_groups == 1) /* less than one sequence of full length fits */
            r->most_blocks[i] = (uint32_t)(all.memory_bytes / r->kv_groups[i].bytes_per_block);
}

/* Estimates the activations. The scratch memory holds unpacked matrices, or a mixture's sums
 * (float) and inner widths. */
uint64_t plan_estimate_activations(const struct plan_pass *p)
{
    uint64_t logits = (uint64_t)RUNNER_MAX_LOGITS_ROWS * p->vocab_size;
    uint64_t mixture =
        (uint64_t)p->n_rows * p->n_chosen * (4ull * p->hidden + 2ull * p->expert_width);
    uint64_t scratch = mixture > SCRATCH_BYTES ? mixture : SCRATCH_BYTES;
    return 2 * p->widths * p->n_rows + logits * LOGIT_BYTES + scratch;
}

static uint64_t estimate(const struct engine *e)
{
    struct plan_pass pass = {.n_rows = e->pass_rows,
                             .vocab_size = e->config.vocab_size,
                             .n_chosen = e->config.moe.n_chosen,
                             .hidden = e->config.hidden,
                             .expert_width = e->program->expert_inner.n};
    for (int i = 0; i < REG_COUNT; i++)
        pass.widths += e->program->widths[i];
    return plan_estimate_activations(&pass);
}

/* Counts the weights of a rank that has the whole model. An embedding that is not the head is
 * only looked up, so it does not count as read. */
static void count(const struct engine *e, struct plan_counts *out)
{
    const struct model_config *c = &e->config;
    const struct program *p = e->program;
    uint32_t n_experts = c->moe.n_experts;
    *out = (struct plan_counts){.chosen = n_experts ? (double)c->moe.n_chosen / n_experts : 0,
                                .n_layers = c->n_layers,
                                .hidden = c->hidden,
                                .n_heads = c->n_heads,
                                .n_kv_heads = c->n_kv_heads,
                                .head_dim = c->head_dim,
                                .intermediate = c->intermediate,
                                .vocab_size = c->vocab_size,
                                .is_latent = c->mla.kv_rank > 0};
    for (uint32_t i = 0; i < p->n_weights; i++) {
        double n = (double)p->weights[i].n * p->weights[i].k;
        out->n_params += n;
        if (p->weights[i].n_experts > 0)
            out->n_of_experts += n;
        else if (i != p->i_embedding || i == p->i_head)
            out->n_read += n;
    }
}

static enum status plan_one(struct plan *p, const struct engine_setup *s, struct plan_rank *r,
                            struct error *err)
{
    struct engine *e;
    TRY(engine_measure(s, &e, err));
    r->rank = s->rank;
    r->stage = s->stage;
    r->weights_bytes = e->weights_bytes;
    r->activation_bytes = e->activation_bytes;
    if (p->n_ranks == 1)
        count(e, &p->counts);
    if (p->activations_estimated)
        r->activation_bytes = e->activation_bytes = estimate(e);
    else if (s->device) {
        const struct gpu_sampler_options o =
            executor_device_sampler_options(s->device, e->config.vocab_size);
        r->activation_bytes += gpu_sampler_bytes(&o);
    } else if (comm_place_samples(&(struct comm_place){s->tp, s->pp, s->rank, s->stage}))
        r->activation_bytes += executor_samplers_measure(p->n_threads, e->config.vocab_size);
    r->comm_bytes = e->comm_bytes;
    r->lora_bytes = e->lora_bytes;
    size_kv(r, e, p->memory_bytes);
    r->total_bytes = total_of(r);
    p->dtype = dtype_traits(e->main_dtype).name;
    p->kv_dtype = dtype_traits(e->kv_dtype).name;
    p->max_model_len = e->max_model_len;
    engine_close(e);
    return STATUS_OK;
}

/* ---- all ranks ---- */

static uint32_t threads_of(const struct plan_options *o, uint32_t n_ranks)
{
    uint32_t share = host_cpus() / n_ranks;
    if (o->worker.threads > 0)
        return (uint32_t)o->worker.threads;
    return share < 1 ? 1 : share > WORKER_MAX_THREADS ? WORKER_MAX_THREADS : share;
}

static enum status check(const struct plan_options *o, struct error *err)
{
    if (o->worker.block_size % 16 != 0)
        return error_set(err, STATUS_INVALID, "--block-size %lld must be a multiple of 16",
                         (long long)o->worker.block_size);
    return executor_model_check(&o->worker, err);
}

/* Reads the model's name, family and format, and refuses a model without weights. */
static enum status look_at(const char *model, const char *cache_dir, struct plan *p,
                           struct error *err)
{
    struct model_info info;
    enum status found = model_info_open(model, cache_dir, &info, err);
    if (found == STATUS_NOT_FOUND) {
        const struct error why = *err;
        error_set(err, found, "%s. To plan, a folder with only the model's config.json is enough",
                  why.text);
    }
    TRY(found);
    p->model = mem_strdup(info.path);
    p->family = mem_strdup(info.family);
    p->is_gguf = info.format == MODEL_GGUF;
    enum status s =
        info.format == MODEL_NULL
            ? error_set(err, STATUS_INVALID,
                        "the model null cannot be planned: it has no weights. Name another model")
            : STATUS_OK;
    model_info_fini(&info);
    return s;
}

/* Opens a GPU for measurements. With --memory-bytes the GPU need not exist. A GPU that exists is
 * opened as a worker opens it, so that memory used by others and by CUDA itself is not counted
 * as free. */
static enum status set_gpu(const struct plan_options *o, struct plan *p, struct engine_setup *s,
                           struct error *err)
{
    struct gpu_info info = {.memory_bytes = (uint64_t)o->memory_bytes};
    const struct cuda_device_options d = {.utilization = o->gpu_memory_utilization, .n_threads = 1};
    enum status st = p->memory_found ? gpu_info(0, &info, err) : STATUS_OK;
    if (st == STATUS_OK)
        st = p->memory_found ? cuda_device_open(&d, &s->device, err)
                             : cuda_measure_open(&s->device, err);
    if (st != STATUS_OK)
        return error_prefix(err, st,
                            "no GPU can be read; --memory-bytes sets the memory of a GPU that is "
                            "not in this machine");
    cuda_engine_setup(s, info.memory_bytes);
    p->memory_bytes = p->memory_found
                          ? s->device->ops->memory.available_bytes(s->device)
                          : (uint64_t)(o->gpu_memory_utilization * (double)info.memory_bytes);
    return STATUS_OK;
}

/* Sets up measurements for a GPU that this machine does not have, whether or not this build has
 * CUDA. */
static void set_foreseen(const struct plan_options *o, struct plan *p, struct engine_setup *s)
{
    struct error none;
    p->activations_estimated = cuda_measure_open(&s->device, &none) != STATUS_OK;
    cuda_engine_setup(s, (uint64_t)o->memory_bytes);
    p->memory_bytes = (uint64_t)(o->gpu_memory_utilization * (double)o->memory_bytes);
}

static enum status plan_ranks(const struct plan_options *o, struct plan *p, struct engine_setup *s,
                              struct error *err)
{
    if (p->is_foreseen)
        set_foreseen(o, p, s);
    else if (o->device == PLAN_DEVICE_CUDA)
        TRY(set_gpu(o, p, s, err));
    else if (p->memory_found)
        p->memory_bytes = host_available_bytes() / p->n_ranks;
    p->n_threads = threads_of(o, p->n_ranks);
    p->ranks = mem_array(p->n_ranks, sizeof *p->ranks);
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        s->rank = i % s->tp;
        s->stage = i / s->tp;
        TRY(plan_one(p, s, &p->ranks[i], err));
    }
    return STATUS_OK;
}

static enum status make(const char *model, const struct plan_options *o, bool is_foreseen,
                        struct plan *out, struct error *err)
{
    struct engine_setup s = executor_model_setup(&o->worker);
    s.tp = s.tp ? s.tp : 1;
    *out = (struct plan){.is_foreseen = is_foreseen,
                         .tp = s.tp,
                         .pp = s.pp,
                         .block_tokens = s.block_tokens,
                         .n_ranks = s.tp * s.pp,
                         .memory_bytes = (uint64_t)o->memory_bytes,
                         .memory_found = o->memory_bytes == 0};
    TRY(check(o, err));
    TRY(look_at(model, o->worker.cache_dir, out, err));
    s.model = model;
    s.load_format = out->is_gguf ? WORKER_LOAD_AUTO : WORKER_LOAD_DUMMY;
    s.n_threads = 1; /* one thread is enough, since nothing is computed */
    enum status st = plan_ranks(o, out, &s, err);
    if (s.device)
        s.device->ops->close(s.device);
    return st;
}

enum status plan_make(const char *model, const struct plan_options *o, struct plan *out,
                      struct error *err)
{
    return make(model, o, false, out, err);
}

enum status plan_foresee(const char *model, const struct plan_options *o, struct plan *out,
                         struct error *err)
{
    return make(model, o, true, out, err);
}

void plan_fini(struct plan *p)
{
    mem_free(p->model);
    mem_free(p->family);
    mem_free(p->ranks);
    *p = (struct plan){0};
}

bool plan_fits(const struct plan *p)
{
    for (uint32_t i = 0; i < p->n_ranks; i++)
        if (!p->ranks[i].fits)
            return false;
    return true;
}

uint64_t plan_token_bytes(const struct plan *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_ranks; i++)
        for (uint32_t g = 0; g < p->ranks[i].n_kv_groups; g++)
            sum += p->ranks[i].kv_groups[g].bytes_per_block / p->block_tokens;
    return sum;
}

uint64_t plan_max_batch(const struct plan *p)
{
    uint64_t n = UINT64_MAX;
    for (uint32_t i = 0; i < p->n_ranks; i++)
        for (uint32_t g = 0; g < p->ranks[i].n_kv_groups; g++) {
            const struct plan_rank *r = &p->ranks[i];
            uint64_t tokens =
                kv_store_sequence_tokens(r->kv_groups[g].window_tokens, p->max_model_len);
            uint64_t blocks = (tokens + p->block_tokens - 1) / p->block_tokens;
            uint64_t own = r->most_blocks[g] / blocks;
            n = own < n ? own : n;
        }
    return n;
}
