/* Drives an executor on GPU 0 for the GPU benches. Their main files open it (drive_open), send
 * steps (drive_prefill, drive_decode) and read seconds or counts. Each step is a plan that is
 * passed directly to the executor. finish_one stores the sampled tokens in `last`.
 *
 * At most EXECUTOR_MAX_IN_FLIGHT plans are in flight, and the arrays of a plan are not reused
 * before it has finished. drive_passes and drive_experts bypass the executor and call the
 * runner. No step may be in flight then. All functions run on one thread. An error ends the
 * program (must). */
#include "bench/gpu/drive.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/ceilings.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "worker/executor/device/open.h"
#include "worker/runner/logits.h"
#include "worker/runner/state.h"

/* SLOT_SHIFT: ids between the beginnings of two prompts */
enum { WARM_PASSES = 3, SLOT_SHIFT = 131 };

/* ---- plans ---- */

static void finish_one(struct drive *d)
{
    struct error err = {0};
    struct msg_result result;
    must(d->executor->ops->finish(d->executor, &result, &err), &err, "step");
    for (uint32_t i = 0; i < result.n_items; i++)
        if (result.items[i].ids.n > 0)
            d->last[result.items[i].slot] = result.items[i].ids.ptr[result.items[i].ids.n - 1];
    d->n_in_flight--;
}

void drive_finish(struct drive *d)
{
    while (d->n_in_flight > 0)
        finish_one(d);
}

/* Returns the index for the next plan's arrays. The plan that used them before has finished. */
static uint32_t next_place(struct drive *d)
{
    while (d->n_in_flight == EXECUTOR_MAX_IN_FLIGHT)
        finish_one(d);
    return (uint32_t)(d->i_step % EXECUTOR_MAX_IN_FLIGHT);
}

/* Starts a plan with the runs and admits at index `at`. */
static void begin(struct drive *d, uint32_t at, uint32_t n_runs, uint32_t n_admits)
{
    struct error err = {0};
    const struct msg_plan plan = {.step = ++d->i_step,
                                  .admits = d->admits[at],
                                  .n_admits = n_admits,
                                  .runs = d->runs[at],
                                  .n_runs = n_runs};
    arena_reset(&d->arenas[at]);
    must(d->executor->ops->begin(d->executor, &plan, &d->arenas[at], &err), &err, "begin");
    d->n_in_flight++;
}

/* Describes a sequence of n_ids prompt ids with separate blocks. */
static struct plan_admit admit(struct drive *d, uint32_t slot, uint32_t n_ids, uint32_t n_more)
{
    uint32_t n = (n_ids + n_more + DRIVE_BLOCK - 1) / DRIVE_BLOCK;
    for (uint32_t g = 0; g < d->n_groups; g++)
        d->tables[slot][g] =
            (struct plan_blocks){.i_group = g, .ids = {d->blocks + (size_t)slot * n, n}};
    return (struct plan_admit){.slot = slot,
                               .n_prompt = n_ids,
                               .ids = {d->ids + (size_t)slot * SLOT_SHIFT, n_ids},
                               .sampling = {.repetition_penalty = 1,
                                            .top_p = 1,
                                            .max_tokens = n_more,
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1}};
}

void drive_prefill(struct drive *d, uint32_t n_slots, uint32_t n_ids, uint32_t n_more)
{
    for (uint32_t slot = 0, start = 0; slot < n_slots;) {
        uint32_t at = next_place(d), left = d->engine->pass_rows, n_runs = 0, n_admits = 0;
        while (slot < n_slots && left > 0 && n_runs < DRIVE_MAX_BATCH) {
            uint32_t n = n_ids - start < left ? n_ids - start : left;
            if (start == 0)
                d->admits[at][n_admits++] = admit(d, slot, n_ids, n_more);
            d->runs[at][n_runs++] = (struct plan_run){.slot = slot,
                                                      .blocks = d->tables[slot],
                                                      .n_blocks = start == 0 ? d->n_groups : 0,
                                                      .start = start,
                                                      .n_tokens = n,
                                                      .sample = start + n == n_ids};
            left -= n;
            start = start + n == n_ids ? 0 : start + n;
            slot += start == 0;
        }
        begin(d, at, n_runs, n_admits);
    }
    drive_finish(d);
}

void drive_decode(struct drive *d, uint32_t batch, uint32_t position)
{
    uint32_t at = next_place(d);
    for (uint32_t i = 0; i < batch; i++)
        d->runs[at][i] = (struct plan_run){
            .slot = i, .blocks = d->tables[i], .start = position, .n_tokens = 1, .sample = true};
    begin(d, at, batch, 0);
}

void drive_leave(struct drive *d)
{
    struct error err = {0};
    drive_finish(d);
    must(d->executor->ops->reset(d->executor, &err), &err, "reset");
}

/* ---- passes alone ---- */

struct rows {
    struct row_batch batch;
    uint32_t *ids, *positions;
    struct kv_row *kv[PROGRAM_MAX_KV_GROUPS];
};

static void rows_open(const struct drive *d, uint32_t n, struct rows *r)
{
    *r = (struct rows){.ids = mem_array(n, sizeof *r->ids),
                       .positions = mem_array(n, sizeof *r->positions)};
    r->batch = (struct row_batch){.n_rows = n, .ids = r->ids, .positions = r->positions};
    memcpy(r->ids, d->last, n * sizeof *r->ids);
    for (uint32_t g = 0; g < d->n_groups; g++) {
        r->kv[g] = mem_array(n, sizeof *r->kv[g]);
        r->batch.kv_rows[g] = r->kv[g];
    }
}

static void rows_close(const struct drive *d, struct rows *r)
{
    for (uint32_t g = 0; g < d->n_groups; g++)
        mem_free(r->kv[g]);
    mem_free(r->ids);
    mem_free(r->positions);
}

static void forward(struct drive *d, struct rows *r, uint32_t position)
{
    struct error err = {0};
    for (uint32_t i = 0; i < r->batch.n_rows; i++) {
        r->positions[i] = position;
        for (uint32_t g = 0; g < d->n_groups; g++)
            r->kv[g][i] = (struct kv_row){.blocks = d->tables[i][g].ids.ptr, .position = position};
    }
    must(runner_forward(d->engine->runner, &r->batch, &err), &err, "forward");
}

static void wait_for_device(struct drive *d)
{
    struct error err = {0};
    must(d->engine->device->ops->pass.sync(d->engine->device, &err), &err, "sync");
}

double drive_passes(struct drive *d, uint32_t batch, uint32_t first, uint32_t n)
{
    struct error err = {0};
    struct rows r;
    uint32_t which[DRIVE_MAX_BATCH];
    uint64_t begin_ns = 0;
    float *logits;
    for (uint32_t i = 0; i < batch; i++)
        which[i] = i;
    rows_open(d, batch, &r);
    for (uint32_t i = 0; i < WARM_PASSES + n; i++) {
        if (i == WARM_PASSES) {
            wait_for_device(d);
            begin_ns = clock_mono_ns();
        }
        forward(d, &r, i < WARM_PASSES ? first : first + i - WARM_PASSES);
        must(runner_logits(d->engine->runner, which, batch, &logits, &err), &err, "logits");
    }
    wait_for_device(d);
    double seconds = (double)(clock_mono_ns() - begin_ns) / (double)NS_PER_S / n;
    rows_close(d, &r);
    return seconds;
}

/* ---- number of experts ---- */

static struct {
    void (*route)(struct device *d, const struct route_params *p);
    uint32_t n_rows;
    double n_experts;
} probe;

static void probed_route(struct device *d, const struct route_params *p)
{
    struct error err = {0};
    uint32_t n_rows = p->n_rows < probe.n_rows ? p->n_rows : probe.n_rows;
    size_t n = (size_t)n_rows * p->n_chosen;
    uint32_t *ids = mem_array(n, sizeof *ids);
    bool *seen = mem_array(p->n_experts, sizeof *seen);
    probe.route(d, p);
    must(d->ops->memory.read(d, ids, p->ids, n * sizeof *ids, &err), &err, "experts");
    for (size_t i = 0; i < n; i++)
        if (ids[i] < p->n_experts && !seen[ids[i]]) {
            seen[ids[i]] = true;
            probe.n_experts++;
        }
    mem_free(ids);
    mem_free(seen);
}

static enum record_state never_recorded(struct device *d, uint64_t key, bool of_rows,
                                        struct error *why)
{
    (void)d, (void)key, (void)of_rows, (void)why;
    return RECORD_NONE;
}

double drive_experts(struct drive *d, uint32_t batch, uint32_t position)
{
    struct runner *runner = d->engine->runner;
    const struct ops *ops = runner->ops;
    struct ops probed = *ops;
    struct rows r;
    probe.route = ops->math.route;
    probe.n_rows = batch;
    probe.n_experts = 0;
    if (d->engine->config.moe.n_experts == 0)
        return 0;
    probed.math.route = probed_route;
    probed.recording.begin = never_recorded;
    rows_open(d, batch, &r);
    runner->ops = &probed;
    forward(d, &r, position);
    wait_for_device(d);
    runner->ops = ops;
    rows_close(d, &r);
    return probe.n_experts;
}

/* ---- the model ---- */

/* Splits n_tokens into several prompts when the model accepts fewer at once. */
static void find_lengths(struct drive *d, const char *cache_dir)
{
    struct error err = {0};
    struct model_info info;
    const struct drive_shape *s = &d->shape;
    must(model_info_open(s->model, cache_dir, &info, &err), &err, s->model);
    uint32_t most = info.max_model_len;
    if (s->context + s->n_more > most)
        must(error_set(&err, STATUS_INVALID, "%u + %u tokens, it was made for %u", s->context,
                       s->n_more, most),
             &err, s->model);
    /* 2 prompts of 4,095 replace a prompt of 8,192, for example */
    d->n_prompts = (uint32_t)ceil(s->n_tokens * 0.99 / (most - 1));
    d->prompt_len = s->n_tokens / d->n_prompts;
    d->prompt_len = d->prompt_len < most ? d->prompt_len : most - 1;
    uint32_t longest =
        d->prompt_len + 1 > s->context + s->n_more ? d->prompt_len + 1 : s->context + s->n_more;
    d->max_len = longest < most ? longest : most;
}

static uint64_t blocks_for(uint64_t n_slots, uint64_t n_tokens)
{
    return n_slots * ((n_tokens + DRIVE_BLOCK - 1) / DRIVE_BLOCK);
}

static void join(struct drive *d, uint32_t n_blocks)
{
    struct error err = {0};
    const struct executor_info *info = d->executor->ops->info(d->executor);
    uint32_t counts[DRIVE_MAX_GROUPS];
    uint8_t id[COMM_ID_MAX_BYTES];
    uint32_t n_id = sizeof id;
    d->n_groups = info->limits.n_kv_groups;
    for (uint32_t g = 0; g < d->n_groups; g++)
        counts[g] = n_blocks;
    must(d->executor->ops->make_comm_id(d->executor, id, &n_id, &err), &err, "id");
    const struct executor_comm comm = {.term_epoch = 1,
                                       .tp = 1,
                                       .pp = 1,
                                       .isa_level = info->isa_level,
                                       .n_blocks = {counts, d->n_groups},
                                       .id = {id, n_id}};
    must(d->executor->ops->join_comm(d->executor, &comm, &err), &err, "join");
}

enum status drive_open(struct drive *d, const struct drive_shape *s, struct error *err)
{
    char cache[4096];
    *d = (struct drive){.shape = *s};
    model_cache_dir(NULL, getenv("HOME"), cache, sizeof cache);
    find_lengths(d, cache);
    uint64_t n_blocks = blocks_for(s->max_batch, s->context + s->n_more);
    uint64_t n_long = blocks_for(d->n_prompts, d->prompt_len + 1);
    n_blocks = (n_blocks > n_long ? n_blocks : n_long) + 1;
    const struct worker_options o = {.model = s->model,
                                     .cache_dir = cache,
                                     .device = WORKER_DEVICE_CUDA,
                                     .load_format = WORKER_LOAD_DUMMY,
                                     .block_size = DRIVE_BLOCK,
                                     .gpu = -1,
                                     .gpu_memory_utilization = 0.92,
                                     .num_gpu_blocks_override = (int64_t)n_blocks,
                                     .max_model_len = d->max_len,
                                     .tp = 1,
                                     .pp = 1};
    enum status st = executor_open(&o, &d->executor, err);
    if (st == STATUS_NO_MEMORY)
        return st;
    must(st, err, s->model);
    if (!d->executor->in_halves)
        must(error_set(err, STATUS_INTERNAL, "no steps in halves"), err, s->model);
    d->engine = ((struct executor_model *)d->executor)->engine;
    join(d, (uint32_t)n_blocks);
    uint32_t vocab = d->executor->ops->info(d->executor)->limits.vocab_size;
    size_t n_ids = (size_t)d->max_len + (size_t)DRIVE_MAX_BATCH * SLOT_SHIFT;
    struct rng rng = {20261122};
    d->ids = mem_array(n_ids, sizeof *d->ids);
    d->blocks = mem_array(n_blocks, sizeof *d->blocks);
    for (size_t i = 0; i < n_ids; i++)
        d->ids[i] = (uint32_t)rng_below(&rng, vocab);
    for (uint32_t i = 0; i < n_blocks; i++)
        d->blocks[i] = i;
    for (uint32_t i = 0; i < EXECUTOR_MAX_IN_FLIGHT; i++)
        arena_init(&d->arenas[i], 0);
    return STATUS_OK;
}

void drive_close(struct drive *d)
{
    d->executor->ops->close(d->executor);
    for (uint32_t i = 0; i < EXECUTOR_MAX_IN_FLIGHT; i++)
        arena_fini(&d->arenas[i]);
    mem_free(d->ids);
    mem_free(d->blocks);
}
