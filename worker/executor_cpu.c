/* The CPU device: plans executed with a model's weights (docs/runner.md). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/host.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "kernels/cpu/cpu.h"
#include "worker/batch.h"
#include "worker/engine.h"
#include "worker/executor.h"
#include "worker/sampler.h"

enum { ID_BYTES = 16, HEX_BYTES = 2 * 16 + 1 };

struct executor_cpu {
    struct executor base;
    struct executor_info info;
    struct engine *engine;
    struct sequences *sequences;
    struct batch batch;
    struct sampler **samplers; /* [n_samplers], one of the threads each */
    uint32_t n_samplers;
    struct sampling *samplings; /* [RUNNER_LOGITS_ROWS] */
    char *served_name;
    char device_name[160];
    uint8_t made_id[ID_BYTES];
    bool has_made_id;
    bool warned_not_finite;
    _Atomic bool interrupted;
};

/* One sampled row, for whichever thread takes it. */
struct sampling {
    struct sampler_row row;
    struct sampler_choice choice;
};

static struct executor_cpu *of(struct executor *e)
{
    return (struct executor_cpu *)e;
}

static const struct executor_info *cpu_info(const struct executor *e)
{
    return &((const struct executor_cpu *)e)->info;
}

/* ---- communicator: one rank has nobody to talk to ---- */

static enum status cpu_make_comm_id(struct executor *e, uint8_t *out, uint32_t *n,
                                    struct error *err)
{
    struct executor_cpu *x = of(e);
    if (*n < ID_BYTES)
        return error_set(err, STATUS_LIMIT, "no room for a communicator id");
    random_secure(x->made_id, ID_BYTES);
    x->has_made_id = true;
    memcpy(out, x->made_id, ID_BYTES);
    *n = ID_BYTES;
    return STATUS_OK;
}

static enum status cpu_join_comm(struct executor *e, const struct executor_comm *c,
                                 struct error *err)
{
    struct executor_cpu *x = of(e);
    if (c->tp != 1 || c->pp != 1)
        return error_set(err, STATUS_UNSUPPORTED, "a group of %u x %u ranks: this runner is alone",
                         c->tp, c->pp);
    if (!x->has_made_id || c->id.n != ID_BYTES || memcmp(c->id.ptr, x->made_id, ID_BYTES) != 0)
        return error_set(err, STATUS_INVALID, "this is not the communicator id that rank 0 made");
    x->has_made_id = false;
    struct device *d = x->engine->device;
    TRY(d->ops->set_isa_level(d, c->isa_level, err));
    executor_bump(e);
    return sequences_reset(x->sequences, c->n_blocks, err);
}

static void cpu_abort_comm(struct executor *e)
{
    struct executor_cpu *x = of(e);
    struct error err;
    if (sequences_reset(x->sequences, (struct u32_span){0}, &err) != STATUS_OK)
        log_error("abort_failed", "error=%s", log_quote(err.text));
    atomic_store(&x->interrupted, false);
}

static enum status cpu_reset(struct executor *e, struct error *err)
{
    return sequences_reset(of(e)->sequences, (struct u32_span){0}, err);
}

static void cpu_interrupt(struct executor *e)
{
    atomic_store(&of(e)->interrupted, true);
}

/* ---- sampling ---- */

struct share {
    struct executor_cpu *x;
    uint32_t n, n_shares;
};

static bool wants_logprobs(const struct sampling *s)
{
    return s->row.params->n_logprobs >= 0;
}

/* Share i of the rows that need no memory of the step; one sampler each. */
static void sample_share(void *ctx, uint32_t i_share)
{
    const struct share *h = ctx;
    for (uint32_t i = i_share; i < h->n; i += h->n_shares) {
        struct sampling *s = &h->x->samplings[i];
        /* without log-probabilities there is nothing that could fail */
        if (!wants_logprobs(s))
            (void)!sampler_choose(h->x->samplers[i_share], &s->row, NULL, &s->choice, NULL, NULL);
    }
}

/* The weights are broken, or the prompt drove them out of range: said once, answered all the same.
 */
static void warn_not_finite(struct executor_cpu *x, const struct sequence *q)
{
    if (!x->warned_not_finite)
        log_warn("logits_not_finite", "slot=%u position=%u model=%s", q->slot, q->n_ids,
                 log_quote(x->engine->info.path));
    x->warned_not_finite = true;
}

/* What the device says of each row before a sampler looks at it. */
static void look_at_logits(struct executor_cpu *x, const struct batch_sample *from, float *logits,
                           uint32_t n)
{
    const struct engine *e = x->engine;
    struct view view = {logits, e->config.vocab_size};
    struct logits_top top[RUNNER_LOGITS_ROWS];
    float shift[RUNNER_LOGITS_ROWS];
    double sums[RUNNER_LOGITS_ROWS] = {0};
    bool wanted = false;
    e->device->ops->logits_top(e->device, view, n, view.stride, top);
    for (uint32_t i = 0; i < n; i++) {
        const struct sequence *q = from[i].sequence;
        x->samplings[i].row = (struct sampler_row){.params = &q->sampling,
                                                   .ids = q->ids,
                                                   .n_ids = q->n_ids,
                                                   .n_prompt = q->n_prompt,
                                                   .logits = logits + (size_t)i * view.stride,
                                                   .best_id = top[i].id,
                                                   .best = top[i].best,
                                                   .second = top[i].second};
        shift[i] = top[i].best;
        if (!isfinite(top[i].best))
            warn_not_finite(x, q);
        wanted = wanted || wants_logprobs(&x->samplings[i]);
    }
    if (wanted)
        e->device->ops->sum_exp(e->device, view, n, view.stride, shift, sums);
    for (uint32_t i = 0; i < n; i++)
        x->samplings[i].row.sum_exp = sums[i];
}

static enum status finish_sample(struct executor_cpu *x, struct sampling *s, struct sequence *q,
                                 struct arena *arena, struct result_item *item, struct error *err)
{
    struct logprob_row *row = NULL;
    if (wants_logprobs(s)) {
        row = arena_try_array(arena, 1, sizeof *row);
        if (!row)
            return error_set(err, STATUS_NO_MEMORY, "no memory for log-probabilities");
        TRY(sampler_choose(x->samplers[0], &s->row, arena, &s->choice, row, err));
    }
    uint32_t *id = arena_try_alloc(arena, sizeof *id);
    if (!id || !sequence_push(q, s->choice.id, x->info.limits.max_model_len))
        return error_set(err, STATUS_NO_MEMORY, "no memory for the result of slot %u", q->slot);
    *id = s->choice.id;
    *item = (struct result_item){.slot = q->slot,
                                 .ids = {id, 1},
                                 .logprobs = row,
                                 .n_logprobs = row != NULL,
                                 .gap = s->choice.gap};
    return STATUS_OK;
}

/* The tokens of a pass's sampled rows, RUNNER_LOGITS_ROWS at a time. */
static enum status sample_pass(struct executor_cpu *x, struct arena *arena,
                               struct result_item *items, struct error *err)
{
    const struct batch *b = &x->batch;
    for (uint32_t done = 0; done < b->n_samples;) {
        uint32_t rows[RUNNER_LOGITS_ROWS], n = b->n_samples - done;
        float *logits;
        n = n < RUNNER_LOGITS_ROWS ? n : RUNNER_LOGITS_ROWS;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = b->samples[done + i].row;
        TRY(runner_logits(x->engine->runner, rows, n, &logits, err));
        look_at_logits(x, b->samples + done, logits, n);
        struct share share = {x, n, x->n_samplers};
        cpu_parallel_for(x->engine->device, share.n_shares, sample_share, &share);
        for (uint32_t i = 0; i < n; i++)
            TRY(finish_sample(x, &x->samplings[i], b->samples[done + i].sequence, arena,
                              &items[done + i], err));
        executor_bump(&x->base);
        done += n;
    }
    return STATUS_OK;
}

/* ---- step ---- */

static enum status cpu_step(struct executor *e, const struct msg_plan *p, struct arena *arena,
                            struct msg_result *out, struct error *err)
{
    struct executor_cpu *x = of(e);
    uint64_t started_ns = clock_mono_ns();
    TRY(sequences_apply(x->sequences, p, err));
    struct result_item *items = arena_try_array(arena, p->n_runs ? p->n_runs : 1, sizeof *items);
    if (!items)
        return error_set(err, STATUS_NO_MEMORY, "no memory for %u results", p->n_runs);
    for (uint32_t i = 0; i < p->n_copies; i++)
        kv_store_copy(x->engine->kv, &p->copies[i]);
    uint32_t n_items = 0;
    batch_begin(&x->batch, p);
    while (batch_next(&x->batch, x->sequences)) {
        TRY(runner_forward(x->engine->runner, &x->batch.rows, err));
        TRY(sample_pass(x, arena, items + n_items, err));
        n_items += x->batch.n_samples;
    }
    executor_bump(e);
    *out = (struct msg_result){.term_epoch = p->term_epoch,
                               .step = p->step,
                               .items = items,
                               .n_items = n_items,
                               .execute_ns = clock_mono_ns() - started_ns};
    return STATUS_OK;
}

/* ---- life ---- */

static void cpu_close(struct executor *e)
{
    struct executor_cpu *x = of(e);
    for (uint32_t i = 0; x->samplers && i < x->n_samplers; i++)
        sampler_free(x->samplers[i]);
    mem_free(x->samplers);
    mem_free(x->samplings);
    batch_fini(&x->batch);
    sequences_free(x->sequences);
    engine_close(x->engine);
    mem_free(x->served_name);
    mem_free(x);
}

static const struct executor_ops cpu_executor_ops = {
    .info = cpu_info,
    .make_comm_id = cpu_make_comm_id,
    .join_comm = cpu_join_comm,
    .abort_comm = cpu_abort_comm,
    .reset = cpu_reset,
    .step = cpu_step,
    .interrupt = cpu_interrupt,
    .close = cpu_close,
};

static enum status open_engine(struct executor_cpu *x, const struct worker_options *o,
                               struct error *err)
{
    const struct engine_setup s = {.model = o->model,
                                   .cache_dir = o->cache_dir,
                                   .tp = 1,
                                   .n_threads = (uint32_t)o->threads,
                                   .isa_level = o->cpu_isa - 1, /* 0 is auto */
                                   .kv_dtype_set = o->kv_cache_dtype != WORKER_KV_AUTO,
                                   .kv_dtype = o->kv_cache_dtype == WORKER_KV_FLOAT32 ? DTYPE_F32
                                                                                      : DTYPE_F16,
                                   .block_tokens = (uint32_t)o->block_size,
                                   .max_model_len = (uint32_t)o->max_model_len,
                                   .kv_memory_bytes = (uint64_t)o->kv_cache_memory_bytes,
                                   .n_kv_blocks = (uint32_t)o->num_gpu_blocks_override,
                                   .progress = &x->base.progress,
                                   .interrupt = &x->interrupted};
    uint64_t begin_ns = clock_mono_ns();
    TRY(engine_open(&s, &x->engine, err));
    log_info("model_loaded", "model=%s dtype=%s isa=%s threads=%u weights_bytes=%llu seconds=%.2f",
             log_quote(x->engine->info.path), dtype_traits(x->engine->main_dtype).name,
             x->engine->device->ops->isa_name(x->engine->device), x->engine->n_threads,
             (unsigned long long)x->engine->weights_bytes,
             (double)(clock_mono_ns() - begin_ns) / (double)NS_PER_S);
    return STATUS_OK;
}

/* No more rows than RUNNER_LOGITS_ROWS are sampled at once. */
static enum status open_samplers(struct executor_cpu *x, struct error *err)
{
    uint32_t n = x->engine->n_threads, vocab_size = x->engine->config.vocab_size;
    x->n_samplers = n < RUNNER_LOGITS_ROWS ? n : RUNNER_LOGITS_ROWS;
    x->samplings = mem_array(RUNNER_LOGITS_ROWS, sizeof *x->samplings);
    x->samplers = mem_array(x->n_samplers, sizeof(struct sampler *));
    for (uint32_t i = 0; i < x->n_samplers; i++) {
        x->samplers[i] = sampler_new(vocab_size);
        if (!x->samplers[i])
            return error_set(err, STATUS_NO_MEMORY, "no memory for %u samplers of %llu bytes each",
                             x->n_samplers, (unsigned long long)sampler_bytes(vocab_size));
    }
    return STATUS_OK;
}

static void name_device(struct executor_cpu *x)
{
    char cpu[96];
    struct device *d = x->engine->device;
    host_cpu_name(cpu, sizeof cpu);
    snprintf(x->device_name, sizeof x->device_name, "%s, %s, %u threads", cpu, d->ops->isa_name(d),
             x->engine->n_threads);
}

static void hash_config(struct executor_cpu *x, const struct worker_options *o)
{
    const struct engine *e = x->engine;
    char hex[HEX_BYTES];
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", e->identity[i]);
    executor_config_hash(&(struct config_identity){.model_hashes = str_from(hex),
                                                   .dtype = "float32",
                                                   .quantisation = dtype_traits(e->main_dtype).name,
                                                   .kv_dtype = dtype_traits(e->kv_dtype).name,
                                                   .block_size = (uint32_t)o->block_size,
                                                   .tp = (uint32_t)o->tp,
                                                   .pp = (uint32_t)o->pp,
                                                   .max_model_len = e->max_model_len,
                                                   .vocab_size = e->config.vocab_size},
                         x->info.config_hash);
}

static void fill_info(struct executor_cpu *x, const struct worker_options *o)
{
    const struct engine *e = x->engine;
    struct executor_info *i = &x->info;
    name_device(x);
    x->served_name = mem_strdup(o->served_model_name ? o->served_model_name : e->info.name);
    *i = (struct executor_info){.device = DEVICE_CPU,
                                .device_name = str_from(x->device_name),
                                .model = str_from(x->served_name),
                                .memory_bytes = host_memory_bytes(),
                                .isa_level = e->device->ops->isa_level(e->device),
                                .shard_rank = 0,
                                .shard_stage = 0,
                                .weights_bytes = e->weights_bytes,
                                .activation_bytes =
                                    e->activation_bytes +
                                    x->n_samplers * sampler_bytes(e->config.vocab_size),
                                .kv_bytes = e->kv_bytes};
    i->limits = (struct sequences_limits){.max_model_len = e->max_model_len,
                                          .vocab_size = e->config.vocab_size,
                                          .n_kv_groups = e->program->n_kv_groups};
    memcpy(i->limits.kv_groups, e->kv_groups, sizeof e->kv_groups);
    hash_config(x, o);
}

enum status executor_cpu_open(const struct worker_options *o, struct executor **out,
                              struct error *err)
{
    if (o->tp > 1 || o->pp > 1)
        return error_set(err, STATUS_UNSUPPORTED,
                         "--tp %lld --pp %lld: the CPU runner does not yet run a model over "
                         "several ranks; start it with --tp 1 --pp 1",
                         (long long)o->tp, (long long)o->pp);
    struct executor_cpu *x = mem_zalloc(sizeof *x);
    x->base.ops = &cpu_executor_ops;
    enum status s = open_engine(x, o, err);
    if (s == STATUS_OK)
        s = open_samplers(x, err);
    if (s != STATUS_OK) {
        cpu_close(&x->base);
        return s;
    }
    fill_info(x, o);
    x->sequences = sequences_new(&x->info.limits);
    batch_init(&x->batch, x->engine->pass_rows, x->engine->program->n_kv_groups);
    *out = &x->base;
    return STATUS_OK;
}
