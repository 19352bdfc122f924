/* Executes plans with a model's weights (docs/develop/runner.md), on any device, alone or as one
 * rank of a replica (docs/develop/comm.md). The compute thread calls the executor_ops below; a
 * step itself is in step/. device/cpu.c and device/cuda.c describe the device in `struct
 * executor_device`.
 * Invariants: all ranks execute the same plans, and rank 0 of the last stage samples. The
 * executor owns engine, draft model, sequences and samplers. An interrupt comes from the loop
 * thread and stays set until model_abort_comm clears it. */
#include "worker/executor/device/model.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/host/host.h"
#include "worker/draft/model.h"
#include "worker/engine/shapes.h"
#include "worker/executor/device/engine_setup.h"
#include "worker/executor/device/info.h"
#include "worker/executor/device/shard.h"
#include "worker/executor/device_loss.h"
#include "worker/executor/ranks.h"
#include "worker/executor/step/adapters.h"
#include "worker/executor/step/device_sample.h"
#include "worker/executor/step/pipeline_ids.h"
#include "worker/executor/step/samplers.h"
#include "worker/executor/step/step.h"
#include "worker/grammar/grammars.h"
#include "worker/runner/record.h"
#include "worker/setup/options.h"

/* STUCK_S is the default of --step-timeout in seconds: the time after which a step counts as
 * hung. It equals the limit of a collective (docs/develop/comm.md). */
#define STUCK_S 60ull

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
    if (!x->ranks.ops->listen)
        return STATUS_OK;
    TRY(x->ranks.ops->listen(x, host, err));
    x->info.comm_address = x->ranks.ops->address(x);
    return STATUS_OK;
}

static enum status model_check(struct executor *e, struct error *err)
{
    struct executor_model *x = of(e);
    return x->ranks.in->check ? x->ranks.in->check(x, err) : STATUS_OK;
}

static enum status model_make_comm_id(struct executor *e, uint8_t *out, uint32_t *n,
                                      struct error *err)
{
    struct executor_model *x = of(e);
    uint32_t size = x->ranks.ops->id_bytes;
    if (*n < size)
        return error_set(err, STATUS_LIMIT,
                         "the buffer for the communicator id is too small. Report this bug");
    TRY(x->ranks.ops->make_id(x, x->ranks.made_id, err));
    x->ranks.has_made_id = true;
    memcpy(out, x->ranks.made_id, size);
    *n = size;
    return STATUS_OK;
}

static enum status check_join(struct executor_model *x, const struct executor_comm *c,
                              struct error *err)
{
    bool is_offered = engine_offers(x->engine, c->tp) && c->pp == x->place.pp;
    if (!is_offered || c->rank >= c->tp || c->stage >= c->pp)
        return error_set(err, STATUS_UNSUPPORTED,
                         "this worker cannot be rank %u of %u in stage %u of %u: it was started "
                         "with --tp %u --pp %u%s",
                         c->rank, c->tp, c->stage, c->pp, x->engine->shapes[0].tp, x->place.pp,
                         x->engine->is_elastic ? " and does not offer this smaller TP" : "");
    uint32_t world = c->tp * c->pp;
    if (world > 1 && x->ranks.ops->address && c->n_addresses != world)
        return error_set(
            err, STATUS_INVALID,
            "the head sent the addresses of %u ranks for a replica of %u ranks. Report this bug",
            c->n_addresses, world);
    if (c->id.n != x->ranks.ops->id_bytes)
        return error_set(err, STATUS_INVALID,
                         "the communicator id has %u bytes instead of %u. Report this bug", c->id.n,
                         x->ranks.ops->id_bytes);
    bool makes_id = c->rank == 0 && c->stage == 0;
    if (makes_id &&
        (!x->ranks.has_made_id || memcmp(c->id.ptr, x->ranks.made_id, x->ranks.ops->id_bytes) != 0))
        return error_set(
            err, STATUS_INVALID,
            "the communicator id differs from the id that rank 0 made. Report this bug");
    return STATUS_OK;
}

/* Prepares shard, collectives and samplers for the rank slot. A rank that is alone now uses no
 * collectives, even if it was started for a larger replica. */
static enum status follow_rank_slot(struct executor_model *x, const struct executor_comm *c,
                                    struct error *err)
{
    const struct comm_place at = {c->tp, c->pp, c->rank, c->stage};
    TRY(executor_take_shard(x, &at, err));
    x->place = at;
    x->ranks.comms.sampling_rank = (c->pp - 1) * c->tp;
    x->ranks.in = comm_place_world(&x->place) > 1 ? x->ranks.ops : &ranks_alone;
    if (!executor_is_sampling_rank(x))
        executor_samplers_close(x);
    else if (!x->host.samplers)
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
    x->ranks.has_made_id = false;
    TRY(follow_rank_slot(x, c, err));
    TRY(d->ops->set_isa_level(d, c->isa_level, err));
    TRY(sequences_reset(x->sequences, c->n_blocks, err));
    executor_bump(e);
    return x->ranks.in->join ? x->ranks.in->join(x, c, err) : STATUS_OK;
}

static void model_abort_comm(struct executor *e)
{
    struct executor_model *x = of(e);
    struct error err;
    executor_ahead_drop(x);
    if (x->ranks.ops->leave)
        x->ranks.ops->leave(x);
    executor_drop_steps(x);
    if (!atomic_load(&x->loss.is_lost)) /* a wait for a lost device would block */
        /* recordings contain the collectives of the old group */
        runner_drop_records(x->engine->runner);
    if (sequences_reset(x->sequences, (struct u32_span){0}, &err) != STATUS_OK)
        log_error("abort_failed", "error=%s", log_quote(err.text));
    atomic_store(&x->loss.interrupted_ns, 0);
    atomic_store(&x->interrupted, false);
}

/* Drops the sequences. The head resets only ranks that have executed the same steps. Pending ids
 * will therefore arrive, and the function waits for them first. */
static enum status model_reset(struct executor *e, struct error *err)
{
    TRY(executor_resolve_ids(of(e), err));
    if (of(e)->host.grammars)
        grammars_leave_all(of(e)->host.grammars);
    return sequences_reset(of(e)->sequences, (struct u32_span){0}, err);
}

static void model_interrupt(struct executor *e)
{
    struct executor_model *x = of(e);
    uint64_t none = 0;
    (void)atomic_compare_exchange_strong(&x->loss.interrupted_ns, &none, clock_mono_ns());
    atomic_store(&x->interrupted, true);
    if (x->ranks.ops->interrupt)
        x->ranks.ops->interrupt(x);
}

/* Describes the memory of the KV cache. Only the sampling rank has a draft model, so two ranks
 * in the same rank slot always describe the same pieces. */
static bool model_kv_view(const struct executor *e, struct kv_view *out)
{
    const struct executor_model *x = (const struct executor_model *)e;
    *out = (struct kv_view){.copies = x->copies};
    if (!x->copies && !x->engine->device->ops->on_host)
        return false;
    if (!kv_store_view(x->engine->kv, out))
        return false;
    if (x->draft_model && executor_is_sampling_rank(x))
        draft_model_view(x->draft_model, out);
    return true;
}

static struct grammar_compiler *model_compiler(const struct executor *e)
{
    return ((const struct executor_model *)e)->host.compiler;
}

/* ---- life ---- */

static void model_close(struct executor *e)
{
    struct executor_model *x = of(e);
    executor_samplers_close(x);
    grammar_compiler_free(x->host.compiler);
    executor_device_sampler_close(x);
    batch_fini(&x->batch);
    sequences_free(x->sequences);
    draft_model_close(x->draft_model);
    engine_close(x->engine);
    if (x->copies)
        x->copies->close(x->copies);
    if (x->ranks.ops->close)
        x->ranks.ops->close(x);
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
    .begin = executor_begin,
    .is_due = executor_is_due,
    .finish = executor_finish,
    .check = model_check,
    .adapter = executor_adapter,
    .lost_adapter = executor_lost_adapter,
    .lost = executor_lost,
    .sleep = executor_sleep,
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
    x->ranks.in = x->ranks.ops = x->device->ranks ? x->device->ranks : &ranks_cpu;
    return x->ranks.ops->open(o, x, err);
}

/* Opens the target and, if any, the draft model. The size of the target's KV cache includes a
 * twin of each block for the draft model. */
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
    /* the sampler opens first, because the KV cache takes the rest of the memory */
    if (x->device->open_sampler)
        TRY(executor_device_sampler_open(x, err));
    if (!x->device_sampler)
        x->engine->sampling_bytes =
            executor_samplers_measure(x->engine->n_threads, x->engine->config.vocab_size);
    TRY(engine_load(x->engine, &beside, err));
    return draft ? draft_model_load(x->draft_model, x->engine, err) : STATUS_OK;
}

/* Opens the copies between device and host. A failure is only logged, and the worker serves
 * without KV transfers. */
static void open_copies(struct executor_model *x, const struct worker_options *o)
{
    struct error err;
    if (!x->device->open_copies || o->kv_port < 0)
        return;
    if (x->device->open_copies(x, &x->copies, &err) != STATUS_OK)
        log_warn("kv_not_movable", "error=%s", log_quote(err.text));
}

/* Opens the grammar compiler. On a CPU the planned KV cache is subtracted from the free host
 * memory, because most of it is not touched yet. */
static void open_compiler(struct executor_model *x, const struct worker_options *o)
{
    uint64_t spare = host_available_bytes(), planned = x->found.device ? 0 : x->engine->kv_bytes;
    x->info.grammar_bytes = o->grammar_room > 0
                                ? (uint64_t)o->grammar_room
                                : grammar_compiler_room(spare > planned ? spare - planned : 0);
    x->host.compiler =
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
    if (e->owns_device && e->n_threads > host_cpus()) /* only a CPU device is owned by its engine */
        log_warn(
            "more_threads_than_cpus",
            "threads=%u cpus=%u hint=\"the threads wait for each other's CPU: remove --threads\"",
            e->n_threads, host_cpus());
}

static enum status open_engine(struct executor_model *x, const struct worker_options *o,
                               struct error *err)
{
    struct engine_setup s = executor_model_setup(o);
    s.device = x->found.device;
    if (x->device->setup)
        TRY(x->device->setup(o, &x->found, &s, err));
    s.told_held_bytes = x->ranks.tell ? EXECUTOR_TELL_BYTES : 0;
    s.rank = x->place.rank;
    s.stage = x->place.stage;
    s.collectives = x->ranks.ops->collectives ? x->ranks.ops->collectives(x) : NULL;
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

enum status executor_model_open(const struct executor_device *d, const struct executor_found *found,
                                const struct worker_options *o, struct executor **out,
                                struct error *err)
{
    struct executor_model *x = mem_zalloc(sizeof *x);
    x->base.ops = &model_executor_ops;
    x->device = d;
    x->ranks.in = x->ranks.ops = &ranks_alone;
    x->loss.stuck_ns = (o->step_timeout_s > 0 ? (uint64_t)o->step_timeout_s : STUCK_S) * NS_PER_S;
    x->found = found ? *found : (struct executor_found){0};
    executor_limit_sweep(o);
    /* This is the rank slot that the head will most likely assign. Its shard is loaded before
     * the peers are there. */
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
    if (s == STATUS_OK && executor_is_sampling_rank(x))
        s = executor_samplers_open(x, err);
    if (s == STATUS_OK)
        open_copies(x, o);
    if (s != STATUS_OK) {
        model_close(&x->base);
        return s;
    }
    x->base.in_halves = x->device_sampler != NULL;
    executor_fill_info(x, o);
    x->sequences = sequences_new(&x->info.limits);
    batch_init(&x->batch, x->engine->pass_rows, x->engine->program->n_kv_groups);
    batch_set_stages(&x->batch, x->place.pp);
    *out = &x->base;
    return STATUS_OK;
}
