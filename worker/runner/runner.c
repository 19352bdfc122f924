/* Runs a program on a device over rows of tokens (see runner.h). step/ and the draft model call
 * runner_forward with the rows of a pass. Rows are padded and uploaded, and hidden states come
 * from the previous stage or from the embedding. Then the steps of the program run in order. The
 * results stay in the buffers for logits.c, or go to the next stage.
 * Invariants: the runner makes one allocation on the device, cut once by lay_out, which also
 * measures it. The runner owns this memory and borrows device, program, KV cache and
 * collectives. Buffers hold at most pass_rows rows. One thread uses a runner. */
#include "worker/runner/runner.h"

#include "common/base/arena.h"
#include "common/base/mem.h"
#include "worker/lora/rows.h"
#include "worker/runner/kept.h"
#include "worker/runner/ops.h"
#include "worker/runner/record.h"
#include "worker/runner/state.h"
#include "worker/runner/steps.h"

enum { HOST_ALIGN = 64, DEVICE_ALIGN = 256 };

static uint32_t logits_width(const struct program *p)
{
    if (!program_is_last(p))
        return 0;
    return p->rank == 0 ? p->config->vocab_size : program_vocab_part(p, p->rank).n;
}

/* Returns the next n bytes of the runner's memory. Before the memory is allocated, it only
 * counts the bytes. */
static void *take(const struct runner *r, uint64_t *used, uint64_t n)
{
    uint8_t *at = r->memory + *used;
    *used += align_up(n, HOST_ALIGN);
    return at;
}

static uint64_t lay_out(struct runner *r, const struct program *p, const struct device *d,
                        uint32_t pass_rows)
{
    const struct ops *ops = d->ops;
    const struct model_config *c = p->config;
    const struct scratch_shape shape = runner_scratch_shape(p, d, pass_rows);
    uint64_t used = 0, e = ops->activation_bytes, n_logits = ops->logits_rows;
    uint64_t n_chosen = (uint64_t)pass_rows * c->moe.n_chosen;
    for (uint32_t i = 0; i < REG_COUNT; i++) /* the router's logits are float */
        r->regs[i] =
            take(r, &used, (i == REG_ROUTER ? sizeof(float) : e) * p->widths[i] * pass_rows);
    const uint64_t n_best = ops->math.linear_top ? RUNNER_BEST_ROWS : 0;
    const uint64_t n_looked_at = n_logits > n_best ? n_logits : n_best;
    r->gathered = take(r, &used, program_is_last(p) ? e * c->hidden * n_looked_at : 0);
    r->logits_width = logits_width(p);
    r->logits = take(r, &used, sizeof(float) * r->logits_width * n_logits);
    r->tops = take(r, &used, sizeof *r->tops * n_looked_at);
    r->exp_sums = take(r, &used, sizeof *r->exp_sums * n_logits);
    for (uint32_t i = 0; i < p->n_ropes; i++) {
        r->inv_freqs[i] = take(r, &used, sizeof(float) * p->ropes[i].n);
        r->angles[i] = take(r, &used, 2 * sizeof(float) * p->ropes[i].n * pass_rows);
    }
    r->sums = take(r, &used, sizeof(float) * pass_rows);
    r->expert_ids = take(r, &used, sizeof(uint32_t) * n_chosen);
    r->expert_shares = take(r, &used, sizeof(float) * n_chosen);
    r->expert_list = take(r, &used, c->moe.n_experts ? sizeof(uint32_t) * pass_rows : 0);
    r->scratch_bytes = ops->memory.scratch_bytes(d, &shape);
    if (!ops->on_host) /* operators place their data in these areas themselves */
        used = align_up(used, DEVICE_ALIGN);
    r->tables = take(r, &used, runner_tables_bytes(p, d));
    r->scratch = take(r, &used, r->scratch_bytes);
    return used;
}

enum status runner_check(const struct program *p, const struct device *d, uint32_t pass_rows,
                         struct error *err)
{
    const struct scratch_shape shape = runner_scratch_shape(p, d, pass_rows);
    return d->ops->check ? d->ops->check(d, &shape, err) : STATUS_OK;
}

uint64_t runner_measure(const struct program *p, const struct device *d, uint32_t pass_rows)
{
    struct runner r = {0};
    return lay_out(&r, p, d, pass_rows);
}

static void make_host_rooms(struct runner *r)
{
    uint32_t hidden = r->s.program->config->hidden;
    uint32_t width = r->logits_width > hidden ? r->logits_width : hidden;
    if (r->ops->on_host || !program_is_last(r->s.program))
        return;
    r->host = mem_array((size_t)RUNNER_LOGITS_ROWS * width, sizeof *r->host);
    r->host_rows = mem_array((size_t)RUNNER_LOGITS_ROWS * hidden, sizeof *r->host_rows);
}

enum status runner_new(const struct runner_setup *s, struct runner **out, struct error *err)
{
    const struct program *p = s->program;
    uint64_t n = runner_measure(p, s->device, s->pass_rows);
    void *memory = s->device->ops->memory.alloc(s->device, n);
    if (!memory)
        return error_set(
            err, STATUS_NO_MEMORY,
            "not enough memory for %llu bytes of activations. Free memory on this machine",
            (unsigned long long)n);
    struct runner *r = mem_zalloc(sizeof *r);
    r->s = *s;
    r->ops = s->device->ops;
    r->memory = memory;
    r->n_bytes = n;
    (void)lay_out(r, p, s->device, s->pass_rows);
    for (uint32_t i = 0; i < p->n_ropes; i++)
        r->ops->memory.write(s->device, r->inv_freqs[i], p->ropes[i].inv,
                             sizeof(float) * p->ropes[i].n);
    make_host_rooms(r);
    runner_make_padding(r);
    runner_make_steps(r);
    runner_make_kept(r);
    *out = r;
    return STATUS_OK;
}

void runner_free(struct runner *r)
{
    if (!r)
        return;
    r->ops->memory.release(r->s.device, r->memory, r->n_bytes);
    runner_free_steps(r);
    runner_free_padding(r);
    runner_free_kept(r);
    mem_free(r->host);
    mem_free(r->host_rows);
    mem_free(r);
}

static enum status embed(struct runner *r, const struct row_batch *b, struct error *err)
{
    const struct program *p = r->s.program;
    r->ops->math.embed(r->s.device,
                       &(struct embed_params){.out = runner_view(r, REG_X),
                                              .w = &p->weights[p->i_embedding].w,
                                              .ids = b->ids,
                                              .n_rows = b->n_rows,
                                              .first = program_vocab_part(p, p->rank).first,
                                              .scale = p->embed_scale});
    enum status s = runner_add_ranks(r, REG_X, err);
    return s == STATUS_OK ? s : error_prefix(err, s, "embedding");
}

static size_t hidden_bytes(const struct runner *r)
{
    return (size_t)r->ops->activation_bytes * r->s.program->config->hidden * r->n_rows;
}

/* Receives the hidden states from the same rank of the previous stage. Each rank receives all of
 * them, because a rank with a slice would have to wait for the other slices again. */
static enum status take_hidden(struct runner *r, struct error *err)
{
    struct collectives *c = r->s.collectives;
    enum status s = c->ops->take(c, r->regs[REG_X], hidden_bytes(r), err);
    return s == STATUS_OK ? s
                          : error_prefix(err, s, "receiving the hidden states of stage %u",
                                         r->s.program->stage - 1);
}

static enum status give_hidden(struct runner *r, struct error *err)
{
    struct collectives *c = r->s.collectives;
    enum status s = c->ops->give(c, r->regs[REG_X], hidden_bytes(r), err);
    return s == STATUS_OK ? s
                          : error_prefix(err, s, "sending the hidden states to stage %u",
                                         r->s.program->stage + 1);
}

/* Copies the rows to memory that the device reads. */
static struct row_batch upload(struct runner *r, const struct row_batch *b)
{
    const struct program *p = r->s.program;
    struct device *d = r->s.device;
    uint64_t n_bytes = sizeof *b->ids * b->n_rows;
    struct row_batch own = {.n_rows = b->n_rows};
    r->ops->pass.begin(d);
    r->ops->memory.use_scratch(d, r->scratch, r->scratch_bytes);
    own.ids = r->ops->pass.upload(d, b->ids, n_bytes);
    own.positions = r->ops->pass.upload(d, b->positions, n_bytes);
    for (uint32_t g = 0; g < p->n_kv_groups; g++)
        own.kv_rows[g] = r->ops->pass.upload_rows(d, b->kv_rows[g], b->n_rows,
                                                  kv_store_block_tokens(r->s.kv, g));
    if (r->has_adapters)
        lora_set_begin(r->s.loras, b->adapters, b->n_rows);
    if (b->pending)
        own.pending = r->ops->pass.upload(d, b->pending, n_bytes);
    own.last = b->last;
    own.adapters = b->adapters;
    return own;
}

static enum status run_program(struct runner *r, const struct row_batch *b, struct error *err)
{
    const struct program *p = r->s.program;
    if (b->pending)
        r->ops->math.take_last(r->s.device, (uint32_t *)b->ids, b->pending, b->last, b->n_rows);
    if (program_is_first(p))
        TRY(embed(r, b, err));
    for (uint32_t i = 0; i < p->n_ropes; i++)
        r->ops->math.rope_table(r->s.device,
                                &(struct rope_table_params){.positions = b->positions,
                                                            .n_rows = b->n_rows,
                                                            .n_freqs = p->ropes[i].n,
                                                            .inv_freqs = r->inv_freqs[i],
                                                            .scale = p->ropes[i].scale,
                                                            .out = r->angles[i]});
    struct row_batch kept;
    for (uint32_t i = 0; i < p->n_ops;) {
        if (runner_interrupted(r))
            return error_set(err, STATUS_CLOSED, "interrupted");
        if (runner_cuts_here(r, i)) {
            kept = runner_cut_rows(r, b);
            b = &kept;
            if (kept.n_rows == 0)
                break;
        }
        TRY(runner_run_step(r, &i, b, err));
    }
    return STATUS_OK;
}

static enum status run_pass(struct runner *r, const void *ctx, struct error *err)
{
    return run_program(r, ctx, err);
}

enum status runner_forward(struct runner *r, const struct row_batch *rows, struct error *err)
{
    const struct program *p = r->s.program;
    uint64_t key;
    TRY(runner_check_ranks(r, err));
    r->has_adapters = r->s.loras && rows->adapters;
    const struct row_batch *b = runner_pad(r, rows, &key);
    r->n_rows = b->n_rows;
    runner_begin_kept(r, b);
    const struct row_batch own = upload(r, b);
    if (!program_is_first(p))
        TRY(take_hidden(r, err));
    TRY(runner_run_piece(r, &(struct runner_piece){key, true, run_pass, &own}, err));
    return program_is_last(p) ? STATUS_OK : give_hidden(r, err);
}

struct view runner_hidden(const struct runner *r)
{
    return runner_view(r, REG_X);
}
