/* Loads a model on a device: opens files, builds the program, computes the size of the KV cache,
 * loads the weights and makes the runner. device/model.c calls engine_measure and engine_load at
 * the start, and engine_take_rank when the head assigns another rank slot. `cox plan` only
 * measures. Invariants: nothing large is allocated before the memory table fits. The engine owns
 * everything except a borrowed device and the collectives. After a failed engine_take_rank it
 * has no shard. Main type and identity describe the whole model, so they are equal on all ranks. */
#include "worker/engine/engine.h"

#include <assert.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/host/host.h"
#include "common/model/info/open.h"
#include "common/model/weights/folder.h"
#include "worker/engine/part.h"
#include "worker/engine/shapes.h"
#include "worker/engine/shared.h"
#include "worker/weights/park.h"

/* PASS_ROWS is the number of rows of one pass. It is large enough to read the weights only a few
 * times for a prompt, and small enough to keep the activations small. On a CPU every value gives
 * the same bits. */
enum { PASS_ROWS = 512 };
/* STAGE_PASS_ROWS is the default number of rows of a pass with stages. One stage works on a pass
 * while the next stage works on the previous pass. */
enum { STAGE_PASS_ROWS = 128 };

/* RESERVED_BYTES is the memory left for the process itself: sequences, queues, stacks. */
#define RESERVED_BYTES (64ull << 20)

static double mib(uint64_t n)
{
    return (double)n / (1 << 20);
}

static enum status build_program(struct engine *e, uint32_t rank, uint32_t stage, struct error *err)
{
    return engine_build_part(e, (struct comm_place){e->tp, e->pp, rank, stage}, &e->program, err);
}

/* Finds the main type of the whole model, not of the shard: it must be the same on every rank,
 * and a rank may have fewer experts or none. */
static enum status find_main_dtype(struct engine *e, struct error *err)
{
    struct program *whole;
    TRY(engine_build_part(e, (struct comm_place){1, 1, 0, 0}, &whole, err));
    e->main_dtype = loader_main_dtype(whole, e->files);
    program_free(whole);
    return STATUS_OK;
}

/* Opens the files and writes the model's identity. */
static enum status open_weights(struct engine *e, uint8_t identity[16], struct error *err)
{
    static const char *const names[] = {"auto", "dummy", "safetensors", "gguf", "pt"};
    enum model_format want = e->load_format == WORKER_LOAD_GGUF ? MODEL_GGUF : MODEL_HF;
    if (e->load_format != WORKER_LOAD_AUTO && e->info.format != want)
        return error_set(err, STATUS_INVALID, "--load-format %s: %s is %s", names[e->load_format],
                         e->info.path,
                         want == MODEL_HF ? "not a folder with a config.json" : "not a GGUF file");
    if (e->load_format == WORKER_LOAD_DUMMY)
        return weights_config_identity(&e->info, identity, err);
    enum weights_kind kind = e->load_format == WORKER_LOAD_SAFETENSORS ? WEIGHTS_SAFETENSORS
                             : e->load_format == WORKER_LOAD_PT        ? WEIGHTS_TORCH
                                                                       : WEIGHTS_ANY;
    TRY(weights_open_kind(&e->info, kind, &e->files, err));
    weights_identity(e->files, identity);
    return STATUS_OK;
}

static enum status quantise_at_load(struct engine *e, enum quant_at_load how, struct error *err)
{
    static const char *const methods[] = {[QUANT_AWQ] = "awq",
                                          [QUANT_GPTQ] = "gptq",
                                          [QUANT_FP8] = "fp8",
                                          [QUANT_MXFP4] = "mxfp4",
                                          [QUANT_COMPRESSED] = "compressed-tensors"};
    enum quant_method method = e->config.quant.method;
    if (how != QUANT_AT_LOAD_NONE && method != QUANT_NONE)
        return error_set(err, STATUS_INVALID,
                         "--quantization cannot be used: the model %s is already quantised (%s). "
                         "Remove the option",
                         e->info.path, methods[method]);
    e->config.quant.at_load = how;
    return STATUS_OK;
}

static enum status open_files(struct engine *e, const struct engine_setup *s, struct error *err)
{
    TRY(model_info_open(s->model, s->cache_dir, &e->info, err));
    TRY(model_config_read(&e->info, &e->config, err));
    TRY(quantise_at_load(e, s->quantization, err));
    e->tp = s->tp;
    e->pp = s->pp ? s->pp : 1;
    e->expert_parallel = s->expert_parallel;
    e->is_elastic = s->is_elastic;
    e->load_permille = s->load_permille;
    e->weights_share = s->weights_share;
    e->activations = s->activations;
    if (s->max_model_len > e->info.max_model_len)
        return error_set(err, STATUS_INVALID,
                         "--max-model-len %u is too large: the model supports at most %u tokens. "
                         "Use a lower value",
                         s->max_model_len, e->info.max_model_len);
    e->max_model_len = s->max_model_len ? s->max_model_len : e->info.max_model_len;
    e->load_format = s->load_format;
    TRY(open_weights(e, e->identity, err));
    TRY(build_program(e, s->rank, s->stage, err));
    TRY(find_main_dtype(e, err));
    e->kv_dtype = s->kv_dtype_set              ? s->kv_dtype
                  : e->main_dtype == DTYPE_F32 ? DTYPE_F32
                                               : DTYPE_F16;
    return STATUS_OK;
}

/* Computes the shard's part of the memory table from shapes alone. */
static enum status measure_shard(struct engine *e, struct error *err)
{
    struct engine_part part;
    TRY(engine_measure_part(e, e->program, &part, err));
    e->weights_bytes = part.weights_bytes;
    e->activation_bytes = part.activation_bytes;
    e->comm_bytes = part.comm_bytes;
    e->lora_bytes = part.lora_bytes;
    return STATUS_OK;
}

/* `part_text` is a part of an error text. It is empty when n_bytes is 0. */
struct part_text {
    char text[48];
};
static struct part_text say_part(const char *words, uint64_t n_bytes)
{
    struct part_text t = {""};
    if (n_bytes > 0)
        snprintf(t.text, sizeof t.text, "%s %.1f MiB", words, mib(n_bytes));
    return t;
}

/* Checks that the shard fits without a KV cache. Returns in *fixed all bytes except the KV
 * cache. */
static enum status fit_shard(const struct engine *e, uint64_t beside, uint64_t available,
                             uint64_t *fixed, struct error *err)
{
    assert(e->told_held_bytes <= e->comm_bytes);
    *fixed = e->weights_bytes + e->activation_bytes + (e->comm_bytes - e->told_held_bytes) +
             e->lora_bytes + beside + e->reserved_bytes;
    if (*fixed > available)
        return error_set(err, STATUS_NO_MEMORY,
                         "the model does not fit: the weights need %.1f MiB, the activations %.1f "
                         "MiB and the collectives %.1f MiB%s%s%s, but only %.1f MiB are free. Free "
                         "some memory%s, use a smaller or quantised model, or use more ranks",
                         mib(e->weights_bytes), mib(e->activation_bytes), mib(e->comm_bytes),
                         say_part(", the adapters", e->lora_bytes).text,
                         say_part(", the draft model", beside).text,
                         say_part(", the reserve for growth", e->reserved_bytes).text,
                         mib(available),
                         e->kv_shape.take_all ? ", raise --gpu-memory-utilization" : "");
    return STATUS_OK;
}

/* Checks that the sized KV cache and the `twins` of its blocks fit. `beside` is for the error
 * text and includes the twins. */
static enum status fit_kv(struct engine *e, uint64_t beside, uint64_t twins, uint64_t available,
                          uint64_t fixed, struct error *err)
{
    e->kv_bytes = 0;
    for (uint32_t i = 0; i < e->program->n_kv_groups; i++)
        e->kv_bytes += e->kv_groups[i].n_blocks * e->kv_groups[i].bytes_per_block;
    if (e->kv_bytes + twins > available - fixed)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory: weights %.1f MiB + activations %.1f MiB + collectives "
                         "%.1f MiB + KV cache %.1f MiB%s%s%s exceed the %.1f MiB that are free. "
                         "Lower --kv-cache-memory-bytes or --num-gpu-blocks-override",
                         mib(e->weights_bytes), mib(e->activation_bytes), mib(e->comm_bytes),
                         mib(e->kv_bytes), say_part(" + adapters", e->lora_bytes).text,
                         say_part(" + draft model", beside).text,
                         say_part(" + reserve for growth", e->reserved_bytes).text, mib(available));
    return STATUS_OK;
}

enum status engine_size_kv(struct engine *e, const struct engine_beside *b, uint64_t available,
                           struct error *err)
{
    uint64_t fixed = 0, more = 0, beside = b->fixed_bytes;
    if (e->kv_shape.take_all) /* the rank may later take a larger rank slot */
        TRY(engine_rank_slots_more(e, &more, err));
    available -= more < available ? more : available;
    TRY(fit_shard(e, beside, available, &fixed, err));
    e->kv_shape.available_bytes = available - fixed;
    e->kv_shape.twin_block_bytes = b->block_bytes;
    TRY(kv_store_size(e->program, &e->kv_shape, e->kv_groups, err));
    for (uint32_t i = 0; i < e->program->n_kv_groups; i++) {
        const struct kv_group *g = &e->kv_groups[i];
        if (g->kind != KV_WINDOW)
            beside += g->n_blocks * b->block_bytes;
    }
    return fit_kv(e, beside, beside - b->fixed_bytes, available, fixed, err);
}

/* Returns the memory for the shard. Weights that another process has packed take none. */
static uint64_t available_bytes(const struct engine *e)
{
    return e->device->ops->memory.available_bytes(e->device) + e->found_bytes;
}

/* Loads the measured shard and makes its runner. */
static enum status load_shard(struct engine *e, struct error *err)
{
    struct load_progress progress = {
        .permille = e->load_permille, .rank = e->program->rank, .n_ranks = e->tp};
    load_progress_begin(&progress);
    engine_share_lend(e, &progress);
    enum status s = loader_load(e->program, e->files, e->device, &e->loaded, &progress, err);
    load_progress_end(&progress);
    TRY(engine_in_files(e, s, err));
    engine_share_publish(e);
    if (e->loras)
        TRY(lora_set_take(e->loras, e->program, err));
    e->runner_setup.program = e->program;
    TRY(runner_new(&e->runner_setup, &e->runner, err));
    TRY(e->device->ops->pass.sync(e->device,
                                  err)); /* errors of packing and writing appear only here */
    weights_close(e->files);             /* everything has been copied to device memory */
    e->files = NULL;
    return STATUS_OK;
}

static void drop_shard(struct engine *e)
{
    runner_free(e->runner);
    lora_set_drop(e->loras);
    if (e->device)
        loader_unload(e->device, &e->loaded);
    engine_share_end(e);
    weights_close(e->files);
    program_free(e->program);
    e->runner = NULL;
    e->files = NULL;
    e->program = NULL;
}

static uint32_t default_threads(void)
{
    uint32_t n = host_cpus();
    return n < POOL_MAX_THREADS ? n : POOL_MAX_THREADS;
}

static enum status open_device(struct engine *e, const struct engine_setup *s, struct error *err)
{
    e->device = s->device;
    if (e->device)
        return STATUS_OK;
    TRY(cpu_device_open(&(struct cpu_device_options){.n_threads = e->n_threads,
                                                     .isa_level = s->isa_level,
                                                     .level_only = s->level_only,
                                                     .activations = s->activations},
                        &e->device, err));
    e->owns_device = true;
    return STATUS_OK;
}

static enum status open_loras(struct engine *e, const struct engine_setup *s, struct error *err)
{
    const struct lora_setup l = {.max_loras = s->max_loras,
                                 .max_rank = s->max_lora_rank,
                                 .root = s->lora_root,
                                 .pass_rows = e->pass_rows,
                                 .device = e->device,
                                 .config = &e->config};
    return s->max_loras > 0 ? lora_set_new(&l, &e->loras, err) : STATUS_OK;
}

static enum status measure(struct engine *e, const struct engine_setup *s, struct error *err)
{
    TRY(open_files(e, s, err));
    e->n_threads = s->n_threads ? s->n_threads : default_threads();
    e->pass_rows = s->pass_rows ? s->pass_rows : e->pp > 1 ? STAGE_PASS_ROWS : PASS_ROWS;
    e->kv_stage = s->stage;
    e->told_bytes = s->told_bytes;
    e->told_held_bytes = s->told_held_bytes;
    e->kv_transfer_bytes = s->kv_transfer_bytes;
    e->reserved_bytes = s->reserved_bytes ? s->reserved_bytes : RESERVED_BYTES;
    TRY(open_device(e, s, err));
    TRY(open_loras(e, s, err));
    e->kv_shape = (struct kv_shape){.dtype = e->kv_dtype,
                                    .block_tokens = s->block_tokens,
                                    .max_model_len = e->max_model_len,
                                    .memory_bytes = s->kv_memory_bytes,
                                    .take_all = s->kv_takes_all,
                                    .n_blocks = s->n_kv_blocks};
    e->runner_setup = (struct runner_setup){.device = e->device,
                                            .collectives = s->collectives,
                                            .loras = e->loras,
                                            .pass_rows = e->pass_rows,
                                            .is_eager = s->is_eager,
                                            .progress = s->progress,
                                            .interrupt = s->interrupt};
    return measure_shard(e, err);
}

enum status engine_measure(const struct engine_setup *s, struct engine **out, struct error *err)
{
    struct engine *e = mem_zalloc(sizeof *e);
    uint64_t begin_ns = clock_mono_ns();
    enum status st = measure(e, s, err);
    e->measure_ns = clock_mono_ns() - begin_ns;
    if (st != STATUS_OK) {
        engine_close(e);
        return st;
    }
    *out = e;
    return STATUS_OK;
}

enum status engine_load(struct engine *e, const struct engine_beside *beside, struct error *err)
{
    engine_share_begin(e);
    TRY(engine_size_kv(e, beside, available_bytes(e), err));
    engine_find_shapes(e);
    uint64_t begin_ns = clock_mono_ns();
    TRY(kv_store_new(e->program, e->device, e->kv_dtype, e->kv_groups, &e->kv, err));
    e->kv_ns = clock_mono_ns() - begin_ns;
    e->runner_setup.kv = e->kv;
    begin_ns = clock_mono_ns();
    enum status s = load_shard(e, err);
    e->load_ns = clock_mono_ns() - begin_ns;
    return s;
}

enum status engine_open(const struct engine_setup *s, struct engine **out, struct error *err)
{
    struct engine *e;
    TRY(engine_measure(s, &e, err));
    enum status st = engine_load(e, &(struct engine_beside){0}, err);
    if (st != STATUS_OK) {
        engine_close(e);
        return st;
    }
    *out = e;
    return STATUS_OK;
}

/* Opens the files again and refuses changed files, because this rank would then run another
 * model than its peers. */
static enum status open_same_files(struct engine *e, struct error *err)
{
    uint8_t identity[sizeof e->identity];
    TRY(open_weights(e, identity, err));
    if (memcmp(identity, e->identity, sizeof identity) != 0)
        return error_set(
            err, STATUS_INVALID,
            "the files of %s changed after this worker started: restart all workers of this model",
            e->info.path);
    return STATUS_OK;
}

/* Makes a new KV cache after a change of stage or TP, with the number of blocks of the shape. */
static enum status renew_kv(struct engine *e, uint64_t available, uint64_t fixed, struct error *err)
{
    const struct engine_shape *shape = engine_shape_of(e, e->tp);
    for (uint32_t i = 0; i < e->program->n_kv_groups; i++) {
        e->kv_groups[i].n_blocks = shape->n_blocks[i];
        e->kv_groups[i].bytes_per_block = kv_store_block_bytes(e->program, &e->kv_shape, i);
    }
    TRY(fit_kv(e, 0, 0, available, fixed, err));
    TRY(kv_store_new(e->program, e->device, e->kv_dtype, e->kv_groups, &e->kv, err));
    e->runner_setup.kv = e->kv;
    return STATUS_OK;
}

static enum status take_shard(struct engine *e, uint32_t rank, uint32_t stage, struct error *err)
{
    uint64_t fixed, available;
    TRY(open_same_files(e, err));
    TRY(build_program(e, rank, stage, err));
    TRY(measure_shard(e, err));
    engine_share_begin(e);
    available = available_bytes(e);
    TRY(fit_shard(e, 0, available, &fixed, err));
    if (!e->kv)
        TRY(renew_kv(e, available, fixed, err));
    /* The cache has the largest number of KV heads that any rank's program has. */
    assert(kv_store_layer(e->kv, e->program->layer_begin)->n_kv_heads == e->program->most_kv_heads);
    return load_shard(e, err);
}

static void drop_kv(struct engine *e)
{
    kv_store_free(e->kv);
    e->kv = e->runner_setup.kv = NULL;
}

static void drop_all(struct engine *e)
{
    drop_shard(e);
    drop_kv(e);
    e->sleep_level = SLEEP_LEVEL_WEIGHTS;
    malloc_trim(0); /* the small pieces of the loader and the program */
}

enum status engine_take_rank(struct engine *e, uint32_t tp, uint32_t rank, uint32_t stage,
                             struct error *err)
{
    if (!engine_shape_of(e, tp) || rank >= tp || stage >= e->pp)
        return error_set(err, STATUS_INVALID,
                         "rank %u of %u in stage %u of %u does not exist. Report this bug", rank,
                         tp, stage, e->pp);
    /* the old shard is freed before the new one is loaded, since two shards may not fit */
    drop_shard(e);
    e->sleep_level = SLEEP_LEVEL_WEIGHTS;
    if (e->kv_stage != stage || e->tp != tp) {
        kv_store_free(e->kv);
        e->kv = NULL;
        e->kv_stage = stage;
        e->tp = tp;
    }
    enum status s = take_shard(e, rank, stage, err);
    if (s == STATUS_OK)
        e->sleep_level = SLEEP_LEVEL_AWAKE;
    else
        drop_all(e);
    return s;
}

/* ---- sleep ---- */

/* Moves the weights of a device with memory of its own to the host. The runner holds addresses of
 * weights and KV cache, and adapters are read again. */
static enum status park(struct engine *e, struct error *err)
{
    runner_free(e->runner);
    e->runner = NULL;
    lora_set_drop(e->loras);
    drop_kv(e);
    return weights_park(e->device, &e->loaded, err);
}

enum status engine_sleep(struct engine *e, enum sleep_level level, struct error *err)
{
    if (level <= e->sleep_level)
        return STATUS_OK;
    if (level == SLEEP_LEVEL_WEIGHTS) {
        drop_all(e);
        return STATUS_OK;
    }
    enum status s = kv_store_discard(e->kv) ? STATUS_OK : park(e, err);
    if (s == STATUS_OK)
        e->sleep_level = level;
    else
        drop_all(e);
    return s;
}

/* Undoes park. */
static enum status unpark(struct engine *e, struct error *err)
{
    TRY(kv_store_new(e->program, e->device, e->kv_dtype, e->kv_groups, &e->kv, err));
    e->runner_setup.kv = e->kv;
    TRY(weights_unpark(e->program, e->device, &e->loaded, err));
    if (e->loras)
        TRY(lora_set_take(e->loras, e->program, err));
    TRY(runner_new(&e->runner_setup, &e->runner, err));
    return e->device->ops->pass.sync(e->device, err);
}

enum status engine_wake(struct engine *e, struct error *err)
{
    assert(e->sleep_level != SLEEP_LEVEL_WEIGHTS);
    enum status s = e->loaded.host ? unpark(e, err) : STATUS_OK;
    if (s == STATUS_OK)
        e->sleep_level = SLEEP_LEVEL_AWAKE;
    else
        drop_all(e);
    return s;
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    drop_shard(e);
    lora_set_free(e->loras);
    kv_store_free(e->kv);
    if (e->owns_device)
        e->device->ops->close(e->device);
    model_info_fini(&e->info);
    mem_free(e);
}
