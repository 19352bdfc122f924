/* Plans executed with a model's weights (docs/runner.md), alone or as one of a group's ranks
 * (docs/comm.md), on any device. All ranks execute the same plans; rank 0 of the last stage draws.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/host/host.h"
#include "worker/engine/shapes.h"
#include "worker/executor/ranks.h"
#include "worker/executor/step/device_sample.h"
#include "worker/grammar/grammars.h"
#include "worker/kv/chunks.h"
#include "worker/runner/record.h"
#include "worker/sampling/sweep.h"

/* What a device may take for a step: as long as a collective may (docs/comm.md). Where no table
 * says so (--step-timeout). */
#define STUCK_S 60ull

enum { HEX_BYTES = 2 * 16 + 1 };

static struct executor_model *of(struct executor *e)
{
    return (struct executor_model *)e;
}

static const struct executor_info *model_info(const struct executor *e)
{
    return &((const struct executor_model *)e)->info;
}

/* ---- communicator ---- */

static enum status model_listen(struct executor *e, const char *host, struct error *err)
{
    struct executor_model *x = of(e);
    if (!x->group->listen)
        return STATUS_OK;
    TRY(x->group->listen(x, host, err));
    x->info.comm_address = x->group->address(x);
    return STATUS_OK;
}

static enum status model_check(struct executor *e, struct error *err)
{
    struct executor_model *x = of(e);
    return x->in->check ? x->in->check(x, err) : STATUS_OK;
}

static enum status model_make_comm_id(struct executor *e, uint8_t *out, uint32_t *n,
                                      struct error *err)
{
    struct executor_model *x = of(e);
    uint32_t size = x->group->id_bytes;
    if (*n < size)
        return error_set(err, STATUS_LIMIT, "no room for a communicator id");
    TRY(x->group->make_id(x, x->made_id, err));
    x->has_made_id = true;
    memcpy(out, x->made_id, size);
    *n = size;
    return STATUS_OK;
}

static enum status check_join(struct executor_model *x, const struct executor_comm *c,
                              struct error *err)
{
    bool is_offered = engine_offers(x->engine, c->tp) && c->pp == x->place.pp;
    if (!is_offered || c->rank >= c->tp || c->stage >= c->pp)
        return error_set(err, STATUS_UNSUPPORTED,
                         "rank %u of %u, stage %u of %u: this worker was started with --tp %u "
                         "--pp %u%s",
                         c->rank, c->tp, c->stage, c->pp, x->engine->shapes[0].tp, x->place.pp,
                         x->engine->is_elastic ? ", and does not offer this one" : "");
    uint32_t world = c->tp * c->pp;
    if (world > 1 && x->group->address && c->n_addresses != world)
        return error_set(err, STATUS_INVALID, "addresses of %u ranks for a group of %u",
                         c->n_addresses, world);
    if (c->id.n != x->group->id_bytes)
        return error_set(err, STATUS_INVALID, "communicator id of %u bytes, want %u", c->id.n,
                         x->group->id_bytes);
    bool makes_id = c->rank == 0 && c->stage == 0;
    if (makes_id && (!x->has_made_id || memcmp(c->id.ptr, x->made_id, x->group->id_bytes) != 0))
        return error_set(err, STATUS_INVALID, "this is not the communicator id that rank 0 made");
    return STATUS_OK;
}

static void note_shard(struct executor_model *x, uint32_t tp, int32_t rank, int32_t stage)
{
    atomic_store(&x->base.shard_tp, tp);
    atomic_store(&x->base.shard_rank, rank);
    atomic_store(&x->base.shard_stage, stage);
}

/* Not to be interrupted: a disk slower than a formation may take has to get to the end once; the
 * next formation finds the shard here. */
static enum status take_shard(struct executor_model *x, const struct executor_comm *c,
                              struct error *err)
{
    const struct engine *e = x->engine;
    int32_t held = atomic_load(&x->base.shard_rank), held_stage = atomic_load(&x->base.shard_stage);
    if (held == (int32_t)c->rank && held_stage == (int32_t)c->stage && e->tp == c->tp)
        return STATUS_OK;
    uint64_t begin_ns = clock_mono_ns();
    log_info("shard_changes", "from=%d/%u to=%u/%u from_stage=%d to_stage=%u model=%s", held, e->tp,
             c->rank, c->tp, held_stage, c->stage, log_quote(e->info.path));
    note_shard(x, c->tp, (int32_t)c->rank, (int32_t)c->stage);
    atomic_store(&x->base.load_permille, 1); /* opening the files takes its time too */
    enum status s = engine_take_rank(x->engine, c->tp, c->rank, c->stage, err);
    atomic_store(&x->base.load_permille, 0);
    if (s != STATUS_OK) {
        note_shard(x, 0, -1, -1);
        return s;
    }
    log_info("shard_changed",
             "rank=%u/%u stage=%u/%u weights_bytes=%llu kv_bytes=%llu kv_blocks=%u seconds=%.2f",
             c->rank, c->tp, c->stage, c->pp, (unsigned long long)e->weights_bytes,
             (unsigned long long)e->kv_bytes, e->kv_groups[0].n_blocks,
             (double)(clock_mono_ns() - begin_ns) / (double)NS_PER_S);
    return STATUS_OK;
}

/* Who is alone now talks to nobody, however many there were. */
static enum status follow_seat(struct executor_model *x, const struct executor_comm *c,
                               struct error *err)
{
    TRY(take_shard(x, c, err));
    x->place = (struct comm_place){c->tp, c->pp, c->rank, c->stage};
    x->comms.drawer = (c->pp - 1) * c->tp;
    x->in = comm_place_world(&x->place) > 1 ? x->group : &executor_alone;
    if (!executor_draws(x))
        executor_samplers_close(x);
    else if (!x->samplers)
        TRY(executor_samplers_open(x, err));
    if (atomic_load(&x->interrupted))
        return error_set(err, STATUS_CLOSED, "interrupted");
    return STATUS_OK;
}

static enum status model_join_comm(struct executor *e, const struct executor_comm *c,
                                   struct error *err)
{
    struct executor_model *x = of(e);
    struct device *d = x->engine->device;
    TRY(check_join(x, c, err));
    x->has_made_id = false;
    TRY(follow_seat(x, c, err));
    TRY(d->ops->set_isa_level(d, c->isa_level, err));
    TRY(sequences_reset(x->sequences, c->n_blocks, err));
    executor_bump(e);
    return x->in->join ? x->in->join(x, c, err) : STATUS_OK;
}

static void model_abort_comm(struct executor *e)
{
    struct executor_model *x = of(e);
    struct error err;
    executor_ahead_drop(x);
    if (x->group->leave)
        x->group->leave(x);
    executor_drop_steps(x);
    if (!atomic_load(&x->is_lost))              /* what hangs would be waited for */
        runner_drop_records(x->engine->runner); /* they have it in them */
    if (sequences_reset(x->sequences, (struct u32_span){0}, &err) != STATUS_OK)
        log_error("abort_failed", "error=%s", log_quote(err.text));
    atomic_store(&x->interrupted_ns, 0);
    atomic_store(&x->interrupted, false);
}

/* The head resets ranks that have all executed the same steps: what is to come is on its way. */
static enum status model_reset(struct executor *e, struct error *err)
{
    TRY(executor_settle(of(e), err));
    if (of(e)->grammars)
        grammars_leave_all(of(e)->grammars);
    return sequences_reset(of(e)->sequences, (struct u32_span){0}, err);
}

static void model_interrupt(struct executor *e)
{
    struct executor_model *x = of(e);
    uint64_t none = 0;
    (void)atomic_compare_exchange_strong(&x->interrupted_ns, &none, clock_mono_ns());
    atomic_store(&x->interrupted, true);
    if (x->group->interrupt)
        x->group->interrupt(x);
}

/* ---- adapters ---- */

static enum status model_adapter(struct executor *e, struct msg_adapter *m, struct error *err)
{
    struct lora_set *loras = of(e)->engine->loras;
    char path[PATH_MAX];
    if (!loras)
        return error_set(err, STATUS_UNSUPPORTED,
                         "this worker was started without --enable-lora: it takes no adapters");
    executor_bump(e);
    if (!m->on) {
        lora_set_unload(loras, m->id);
        return STATUS_OK;
    }
    int n = snprintf(path, sizeof path, STR_FMT, STR_ARG(m->path));
    if (m->id == 0 || n < 0 || (size_t)n != m->path.len || strlen(path) != m->path.len)
        return error_set(err, STATUS_INVALID, "an adapter's path of %zu bytes, id %llu",
                         m->path.len, (unsigned long long)m->id);
    return lora_set_load(loras, m->id, path, &m->identity, err);
}

static bool model_lost_adapter(struct executor *e, uint64_t *id, struct error *why)
{
    struct lora_set *loras = of(e)->engine->loras;
    return loras && lora_set_next_loss(loras, id, why);
}

/* Before anything of the plan is executed: rows of an adapter that is not here would be the base
 * model's. */
enum status executor_check_adapters(const struct executor_model *x, const struct msg_plan *p,
                                    struct error *err)
{
    for (uint32_t i = 0; i < p->n_admits; i++) {
        uint64_t id = p->admits[i].sampling.lora_id;
        if (id != 0 && (!x->engine->loras || lora_set_find(x->engine->loras, id) == 0))
            return error_set(err, STATUS_PROTOCOL,
                             "admit to slot %u: adapter %016llx is not on this rank",
                             p->admits[i].slot, (unsigned long long)id);
    }
    return STATUS_OK;
}

void executor_take_adapters(struct executor_model *x, const struct msg_plan *p)
{
    for (uint32_t i = 0; i < p->n_admits && x->engine->loras; i++)
        sequences_find(x->sequences, p->admits[i].slot)->adapter =
            lora_set_find(x->engine->loras, p->admits[i].sampling.lora_id);
}

/* Two ranks that are in one seat have the same pieces: the draft model is on rank 0's only. */
static bool model_kv_view(const struct executor *e, struct kv_view *out)
{
    const struct executor_model *x = (const struct executor_model *)e;
    *out = (struct kv_view){.copies = x->copies};
    if (!x->copies && !x->engine->device->ops->on_host)
        return false;
    if (!kv_store_view(x->engine->kv, out))
        return false;
    if (x->draft_model && executor_draws(x))
        draft_model_view(x->draft_model, out);
    return true;
}

static struct grammar_compiler *model_compiler(const struct executor *e)
{
    return ((const struct executor_model *)e)->compiler;
}

/* ---- life ---- */

static void model_close(struct executor *e)
{
    struct executor_model *x = of(e);
    executor_samplers_close(x);
    grammar_compiler_free(x->compiler);
    executor_draws_close(x);
    batch_fini(&x->batch);
    sequences_free(x->sequences);
    draft_model_close(x->draft_model);
    engine_close(x->engine);
    if (x->copies)
        x->copies->close(x->copies);
    if (x->group->close)
        x->group->close(x);
    if (x->found.device)
        x->found.device->ops->close(x->found.device);
    mem_free(x->served_name);
    mem_free(x);
}

static const struct executor_ops model_executor_ops = {
    .info = model_info,
    .listen = model_listen,
    .make_comm_id = model_make_comm_id,
    .join_comm = model_join_comm,
    .abort_comm = model_abort_comm,
    .reset = model_reset,
    .step = executor_step,
    .check = model_check,
    .adapter = model_adapter,
    .lost_adapter = model_lost_adapter,
    .lost = executor_lost,
    .kv_view = model_kv_view,
    .compiler = model_compiler,
    .interrupt = model_interrupt,
    .close = model_close,
};

/* Of a device that draws. */
static const struct executor_ops halves_executor_ops = {
    .begin = executor_begin,
    .is_due = executor_is_due,
    .finish = executor_finish,
    .info = model_info,
    .listen = model_listen,
    .make_comm_id = model_make_comm_id,
    .join_comm = model_join_comm,
    .abort_comm = model_abort_comm,
    .reset = model_reset,
    .step = executor_step,
    .check = model_check,
    .adapter = model_adapter,
    .lost_adapter = model_lost_adapter,
    .lost = executor_lost,
    .kv_view = model_kv_view,
    .compiler = model_compiler,
    .interrupt = model_interrupt,
    .close = model_close,
};

static enum status open_group(struct executor_model *x, const struct worker_options *o,
                              struct error *err)
{
    if (comm_place_world(&x->place) == 1)
        return STATUS_OK;
    x->in = x->group = x->device->group ? x->device->group : &executor_group_comm;
    return x->group->open(o, x, err);
}

/* The target is sized with the draft in mind: each of its blocks has a twin there. */
static enum status open_models(struct executor_model *x, const struct engine_setup *s,
                               struct error *err)
{
    struct engine_beside beside = {0};
    bool draft = x->speculation.method == SPECULATION_DRAFT_MODEL;
    TRY(engine_measure(s, &x->engine, err));
    if (draft) {
        TRY(draft_model_open(x->speculation.model, s, x->engine, &x->draft_model, err));
        beside = draft_model_needs(x->draft_model);
    }
    if (x->device->open_draws) /* before the KV cache takes the rest */
        TRY(executor_draws_open(x, err));
    if (!x->draws)
        x->engine->draw_bytes =
            executor_samplers_measure(x->engine->n_threads, x->engine->config.vocab_size);
    TRY(engine_load(x->engine, &beside, err));
    return draft ? draft_model_load(x->draft_model, x->engine, err) : STATUS_OK;
}

/* A worker that has none serves all the same. */
static void open_copies(struct executor_model *x, const struct worker_options *o)
{
    struct error err;
    if (!x->device->open_copies || o->kv_port < 0)
        return;
    if (x->device->open_copies(x, &x->copies, &err) != STATUS_OK)
        log_warn("kv_not_movable", "error=%s", log_quote(err.text));
}

/* The memory planned for the host is not all touched yet: on a CPU the KV cache is most of it. */
static void open_compiler(struct executor_model *x, const struct worker_options *o)
{
    uint64_t spare = host_available_bytes(), planned = x->found.device ? 0 : x->engine->kv_bytes;
    x->info.grammar_bytes = o->grammar_room > 0
                                ? (uint64_t)o->grammar_room
                                : grammar_compiler_room(spare > planned ? spare - planned : 0);
    x->compiler =
        grammar_compiler_new(x->engine->info.tokenizer_path, o->cache_dir, x->info.grammar_bytes);
}

static void log_loaded(const struct engine *e, const char *role, uint64_t begin_ns)
{
    uint64_t elapsed_ns = clock_mono_ns() - begin_ns;
    log_info("model_loaded",
             "model=%s role=%s shard=%u/%u stage=%u/%u dtype=%s isa=%s threads=%u "
             "weights_bytes=%llu seconds=%.2f gb_per_s=%.2f",
             log_quote(e->info.path), role, e->program->rank, e->tp, e->program->stage, e->pp,
             dtype_traits(e->main_dtype).name, e->device->ops->isa_name(e->device), e->n_threads,
             (unsigned long long)e->weights_bytes, (double)elapsed_ns / (double)NS_PER_S,
             (double)e->weights_bytes / (double)(elapsed_ns + 1));
    if (e->owns_device && e->n_threads > host_cpus()) /* a CPU */
        log_warn("more_threads_than_cpus",
                 "threads=%u cpus=%u hint=\"they wait for each other: leave --threads out\"",
                 e->n_threads, host_cpus());
}

/* Of a CPU, beside weights that are codes or bfloat16. */
static enum cpu_activations activations_of(const struct worker_options *o)
{
    bool exact = o->dtype == ACTIVATIONS_FLOAT32 || o->dtype == ACTIVATIONS_FLOAT;
    return exact ? CPU_ACTIVATIONS_F32 : CPU_ACTIVATIONS_NARROW;
}

static int32_t isa_level_of(const struct worker_options *o)
{
    static const char *const names[] = {"scalar", "avx2", "avx512", "neon"};
    return o->cpu_isa == 0 ? -1 : cpu_isa_named(names[o->cpu_isa - 1]); /* 0 is auto */
}

/* Of samplers, as of kernels; wider than a level's there are none. */
static void limit_sweep(const struct worker_options *o)
{
    int32_t isa = isa_level_of(o);
    sweep_limit(isa < 0 || isa > SWEEP_AVX512 ? SWEEP_AVX512 : (enum sweep_width)isa);
}

struct engine_setup executor_model_setup(const struct worker_options *o)
{
    return (struct engine_setup){.model = o->model,
                                 .cache_dir = o->cache_dir,
                                 .load_format = (enum worker_load_format)o->load_format,
                                 .quantization = (enum quant_at_load)o->quantization,
                                 .tp = (uint32_t)o->tp,
                                 .pp = (uint32_t)o->pp,
                                 .expert_parallel = o->enable_expert_parallel,
                                 .is_elastic = o->elastic_tp,
                                 .n_threads = (uint32_t)o->threads,
                                 .isa_level = isa_level_of(o),
                                 .level_only = o->cpu_isa > 0,
                                 .activations = activations_of(o),
                                 .kv_dtype_set = o->kv_cache_dtype != KV_CACHE_AUTO,
                                 .kv_dtype = worker_options_kv_dtype(o),
                                 .block_tokens = (uint32_t)o->block_size,
                                 .max_model_len = (uint32_t)o->max_model_len,
                                 .kv_memory_bytes = (uint64_t)o->kv_cache_memory_bytes,
                                 .n_kv_blocks = (uint32_t)o->num_gpu_blocks_override,
                                 .kv_transfer_bytes = o->kv_port < 0 ? 0 : kv_chunks_memory_bytes(),
                                 .max_loras = o->enable_lora ? (uint32_t)o->max_loras : 0,
                                 .max_lora_rank = (uint32_t)o->max_lora_rank,
                                 .lora_root = o->lora_root};
}

static enum status open_engine(struct executor_model *x, const struct worker_options *o,
                               struct error *err)
{
    struct engine_setup s = executor_model_setup(o);
    s.device = x->found.device;
    if (x->device->setup)
        TRY(x->device->setup(o, &x->found, &s, err));
    s.told_held_bytes = x->tell ? EXECUTOR_TELL_BYTES : 0;
    s.rank = x->place.rank;
    s.stage = x->place.stage;
    s.collectives = x->group->collectives ? x->group->collectives(x) : NULL;
    s.progress = &x->base.progress;
    s.interrupt = &x->interrupted;
    s.load_permille = &x->base.load_permille;
    uint64_t begin_ns = clock_mono_ns();
    log_info("model_loading", "model=%s shard=%u/%u stage=%u/%u", log_quote(o->model), s.rank, s.tp,
             s.stage, s.pp);
    TRY(open_models(x, &s, err));
    atomic_store(&x->base.load_permille, 0);
    log_loaded(x->engine, "target", begin_ns);
    if (x->draft_model)
        log_loaded(draft_model_engine(x->draft_model), "draft", begin_ns);
    if (x->device->say_loaded)
        x->device->say_loaded(x, clock_mono_ns() - begin_ns);
    return STATUS_OK;
}

static void write_hex(const struct engine *e, char out[HEX_BYTES])
{
    out[0] = '\0';
    for (size_t i = 0; e && i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", e->identity[i]);
}

static void hash_config(struct executor_model *x, const struct worker_options *o)
{
    const struct engine *e = x->engine;
    char hex[HEX_BYTES], draft_hex[HEX_BYTES];
    static const char *const at_load[] = {[QUANT_AT_LOAD_NONE] = "",
                                          [QUANT_AT_LOAD_INT8] = " int8",
                                          [QUANT_AT_LOAD_INT4] = " int4",
                                          [QUANT_AT_LOAD_FP8] = " fp8"};
    char quantisation[48]; /* of most weights, and of what is rounded whatever most are */
    snprintf(quantisation, sizeof quantisation, "%s%s", dtype_traits(e->main_dtype).name,
             at_load[e->config.quant.at_load]);
    const char *activations = x->device->activations;
    if (x->device->kind == DEVICE_CPU && activations_of(o) == CPU_ACTIVATIONS_NARROW)
        activations = "int8, bfloat16"; /* beside such weights: other numbers, other answers */
    write_hex(e, hex);
    write_hex(x->draft_model ? draft_model_engine(x->draft_model) : NULL, draft_hex);
    const struct config_identity identity = {.model_hashes = str_from(hex),
                                             .draft_hashes = str_from(draft_hex),
                                             .dtype = activations,
                                             .quantisation = quantisation,
                                             .kv_dtype = dtype_traits(e->kv_dtype).name,
                                             .block_size = (uint32_t)o->block_size,
                                             .tp = (uint32_t)o->tp,
                                             .pp = (uint32_t)o->pp,
                                             .max_model_len = e->max_model_len,
                                             .vocab_size = e->config.vocab_size,
                                             .pass_rows = e->pass_rows,
                                             .expert_parallel = e->expert_parallel,
                                             .speculation = x->speculation};
    executor_config_hash(&identity, x->info.config_hash);
    executor_model_hash(&identity, x->info.model_hash);
}

static void fill_info(struct executor_model *x, const struct worker_options *o)
{
    const struct engine *e = x->engine;
    struct executor_info *i = &x->info;
    uint64_t samplers = x->found.device ? 0 : executor_samplers_bytes(x); /* the device's memory */
    x->device->name(x, x->device_name, sizeof x->device_name);
    x->served_name = mem_strdup(worker_options_name(o, e->info.name));
    *i = (struct executor_info){
        .device = x->device->kind,
        .device_name = str_from(x->device_name),
        .model = str_from(x->served_name),
        .tokenizer_path = e->info.tokenizer_path,
        .memory_bytes = x->device->memory_bytes(x),
        .isa_level = e->device->ops->isa_level(e->device),
        .comm_address = x->group->address ? x->group->address(x) : str_from(""),
        .weights_bytes = e->weights_bytes,
        .activation_bytes = e->activation_bytes + samplers + (x->draws ? x->draws->n_bytes : 0),
        .sampler_bytes = samplers,
        .comm_bytes = e->comm_bytes,
        .kv_bytes = e->kv_bytes,
        .lora_bytes = e->lora_bytes,
        .grammar_bytes = executor_draws(x) ? x->info.grammar_bytes : 0};
    if (x->device->place)
        x->device->place(x, i->pci, sizeof i->pci);
    i->limits = (struct sequences_limits){.max_model_len = e->max_model_len,
                                          .vocab_size = e->config.vocab_size,
                                          .n_kv_groups = e->program->n_kv_groups};
    memcpy(i->limits.kv_groups, e->kv_groups, sizeof e->kv_groups);
    if (x->draft_model) {
        const struct engine *d = draft_model_engine(x->draft_model);
        i->draft_bytes = d->weights_bytes + d->activation_bytes;
        i->draft_kv_bytes = d->kv_bytes;
    }
    for (uint32_t k = 1; k < e->n_shapes; k++) {
        struct executor_shape *shape = &i->elastic[i->n_elastic++];
        shape->tp = e->shapes[k].tp;
        memcpy(shape->n_blocks, e->shapes[k].n_blocks, sizeof e->shapes[k].n_blocks);
        memcpy(shape->block_bytes, e->shapes[k].block_bytes, sizeof e->shapes[k].block_bytes);
    }
    i->n_draft = x->speculation.n_tokens;
    if (i->n_draft > 0)
        i->draft_max_seqs =
            x->speculation.max_seqs ? x->speculation.max_seqs : x->device->draft_max_seqs;
    hash_config(x, o);
}

enum status executor_model_check(const struct worker_options *o, struct error *err)
{
    if (o->tp > COMM_MAX_RANKS || o->pp > COMM_MAX_RANKS || o->tp * o->pp > COMM_MAX_RANKS)
        return error_set(err, STATUS_UNSUPPORTED,
                         "--tp %lld --pp %lld: at most %u ranks share a model", (long long)o->tp,
                         (long long)o->pp, COMM_MAX_RANKS);
    return STATUS_OK;
}

enum status executor_model_open(const struct executor_device *d, const struct executor_found *found,
                                const struct worker_options *o, struct executor **out,
                                struct error *err)
{
    struct executor_model *x = mem_zalloc(sizeof *x);
    x->base.ops = &model_executor_ops;
    x->device = d;
    x->in = x->group = &executor_alone;
    x->stuck_ns = (o->step_timeout_s > 0 ? (uint64_t)o->step_timeout_s : STUCK_S) * NS_PER_S;
    x->found = found ? *found : (struct executor_found){0};
    limit_sweep(o);
    /* Where the head will most likely place this rank: it loads before its peers are there. */
    uint32_t at = o->ordinal >= 0 ? (uint32_t)(o->ordinal % (o->tp * o->pp)) : 0;
    uint32_t tp = (uint32_t)o->tp;
    x->place = (struct comm_place){tp, (uint32_t)o->pp, at % tp, at / tp};
    x->base.shard_rank = (int32_t)x->place.rank;
    x->base.shard_stage = (int32_t)x->place.stage;
    enum status s = executor_model_check(o, err);
    if (s == STATUS_OK)
        s = worker_options_check_dtype(o, d->activations, err);
    if (s == STATUS_OK)
        s = speculation_read(&o->speculation, &x->speculation, err);
    if (s == STATUS_OK)
        s = open_group(x, o, err);
    if (s == STATUS_OK)
        s = open_engine(x, o, err);
    if (s == STATUS_OK)
        open_compiler(x, o);
    if (s == STATUS_OK && executor_draws(x))
        s = executor_samplers_open(x, err);
    if (s == STATUS_OK)
        open_copies(x, o);
    if (s != STATUS_OK) {
        model_close(&x->base);
        return s;
    }
    if (x->draws)
        x->base.ops = &halves_executor_ops;
    fill_info(x, o);
    x->sequences = sequences_new(&x->info.limits);
    batch_init(&x->batch, x->engine->pass_rows, x->engine->program->n_kv_groups);
    batch_set_stages(&x->batch, x->place.pp);
    *out = &x->base;
    return STATUS_OK;
}
