#include "worker/runner_internal.h"

#include <string.h>

#include "common/base/mem.h"

static uint64_t aligned(uint64_t n)
{
    return (n + 63) / 64 * 64;
}

static uint32_t logits_width(const struct program *p)
{
    if (!program_is_last(p))
        return 0;
    return p->rank == 0 ? p->config->vocab_size : program_vocab_part(p, p->rank).n;
}

/* Where everything lies; memory NULL: only how much it is. */
static uint64_t lay_out(struct runner *r, const struct program *p, const struct ops *ops,
                        uint32_t pass_rows)
{
    uint64_t used = 0, e = ops->activation_bytes;
    const struct model_config *c = p->config;
    for (uint32_t i = 0; i < REG_COUNT; i++) {
        r->regs[i] = r->memory + used;
        used += aligned(e * p->widths[i] * pass_rows);
    }
    r->gathered = r->memory + used;
    used += program_is_last(p) ? aligned(e * c->hidden * RUNNER_LOGITS_ROWS) : 0;
    r->logits = (float *)(void *)(r->memory + used);
    r->logits_width = logits_width(p);
    used += aligned(sizeof(float) * r->logits_width * RUNNER_LOGITS_ROWS);
    for (uint32_t i = 0; i < p->n_ropes; i++) {
        r->angles[i] = (float *)(void *)(r->memory + used);
        used += aligned(2 * sizeof(float) * p->ropes[i].n * pass_rows);
    }
    r->sums = (float *)(void *)(r->memory + used);
    used += aligned(sizeof(float) * pass_rows);
    uint64_t n_chosen = (uint64_t)pass_rows * c->moe.n_chosen;
    r->expert_ids = (uint32_t *)(void *)(r->memory + used);
    used += aligned(sizeof(uint32_t) * n_chosen);
    r->expert_shares = (float *)(void *)(r->memory + used);
    used += aligned(sizeof(float) * n_chosen);
    r->expert_list = (uint32_t *)(void *)(r->memory + used);
    used += aligned(c->moe.n_experts ? sizeof(uint32_t) * pass_rows : 0);
    return used;
}

uint64_t runner_measure(const struct program *p, const struct device *d, uint32_t pass_rows)
{
    struct runner r = {0};
    return lay_out(&r, p, d->ops, pass_rows);
}

enum status runner_new(const struct runner_setup *s, struct runner **out, struct error *err)
{
    uint64_t n = runner_measure(s->program, s->device, s->pass_rows);
    void *memory = s->device->ops->alloc(s->device, n);
    if (!memory)
        return error_set(err, STATUS_NO_MEMORY, "no memory for %llu bytes of activations",
                         (unsigned long long)n);
    struct runner *r = mem_zalloc(sizeof *r);
    r->s = *s;
    r->ops = s->device->ops;
    r->memory = memory;
    r->n_bytes = n;
    (void)lay_out(r, s->program, r->ops, s->pass_rows);
    r->experts = mem_array(s->program->experts.n, sizeof *r->experts);
    *out = r;
    return STATUS_OK;
}

void runner_free(struct runner *r)
{
    if (!r)
        return;
    r->ops->release(r->s.device, r->memory, r->n_bytes);
    mem_free(r->experts);
    mem_free(r);
}

/* Sums of other ranks than the program was cut for would be numbers like any others. */
static enum status check_ranks(const struct runner *r, struct error *err)
{
    const struct program *p = r->s.program;
    struct collectives_place at = {.n_ranks = 1};
    if (r->s.collectives)
        at = r->s.collectives->ops->place(r->s.collectives);
    if (p->tp > 1 && (at.rank != p->rank || at.n_ranks != p->tp))
        return error_set(err, STATUS_INVALID,
                         "the shard is rank %u of %u, the communicator rank %u of %u", p->rank,
                         p->tp, at.rank, at.n_ranks);
    if ((!program_is_first(p) && !at.before) || (!program_is_last(p) && !at.after))
        return error_set(err, STATUS_INVALID,
                         "the shard is stage %u of %u, and no stage before or behind it is linked",
                         p->stage, p->pp);
    return STATUS_OK;
}

static bool interrupted(const struct runner *r)
{
    atomic_fetch_add_explicit(r->s.progress, 1, memory_order_relaxed);
    return atomic_load_explicit(r->s.interrupt, memory_order_relaxed);
}

static enum status embed(struct runner *r, const struct row_batch *b, struct error *err)
{
    const struct program *p = r->s.program;
    r->ops->embed(r->s.device, &(struct embed_params){.out = runner_view(r, REG_X),
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

/* Whole, to each rank of this stage from the one of its number: every rank there has all of it, and
 * a rank that had taken a slice would wait for the others' once more. */
static enum status take_hidden(struct runner *r, struct error *err)
{
    struct collectives *c = r->s.collectives;
    enum status s = c->ops->take(c, r->regs[REG_X], hidden_bytes(r), err);
    return s == STATUS_OK
               ? s
               : error_prefix(err, s, "hidden states of stage %u", r->s.program->stage - 1);
}

static enum status give_hidden(struct runner *r, struct error *err)
{
    struct collectives *c = r->s.collectives;
    enum status s = c->ops->give(c, r->regs[REG_X], hidden_bytes(r), err);
    return s == STATUS_OK
               ? s
               : error_prefix(err, s, "hidden states for stage %u", r->s.program->stage + 1);
}

enum status runner_forward(struct runner *r, const struct row_batch *b, struct error *err)
{
    const struct program *p = r->s.program;
    TRY(check_ranks(r, err));
    r->n_rows = b->n_rows;
    r->has_adapters = r->s.loras && b->adapters;
    if (r->has_adapters)
        lora_set_begin(r->s.loras, b->adapters, b->n_rows);
    TRY((program_is_first(p) ? embed(r, b, err) : take_hidden(r, err)));
    for (uint32_t i = 0; i < p->n_ropes; i++)
        r->ops->rope_table(r->s.device, &(struct rope_table_params){.positions = b->positions,
                                                                    .n_rows = b->n_rows,
                                                                    .n_freqs = p->ropes[i].n,
                                                                    .inv_freqs = p->ropes[i].inv,
                                                                    .scale = p->ropes[i].scale,
                                                                    .out = r->angles[i]});
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (interrupted(r))
            return error_set(err, STATUS_CLOSED, "interrupted");
        TRY(runner_run_op(r, &p->ops[i], b, err));
    }
    TRY(r->ops->sync(r->s.device, err));
    return program_is_last(p) ? STATUS_OK : give_hidden(r, err);
}

struct view runner_hidden(const struct runner *r)
{
    return runner_view(r, REG_X);
}

/* Every rank's part of each row to rank 0, which has its own at its place: the first columns. */
static enum status gather_logits(struct runner *r, uint32_t n, struct error *err)
{
    const struct program *p = r->s.program;
    struct collectives *c = r->s.collectives;
    struct cut_range of[COLLECTIVES_MAX_RANKS];
    for (uint32_t rank = 0; rank < p->tp; rank++)
        of[rank] = program_vocab_part(p, rank);
    const struct collectives_columns m = {r->logits, n, r->logits_width, of};
    enum status s = c->ops->gather_columns(c, &m, err);
    return s == STATUS_OK ? s : error_prefix(err, s, "logits");
}

/* Some of the last forward's rows behind the final norm, in r->gathered. */
static struct view normed(struct runner *r, const uint32_t *rows, uint32_t n)
{
    const struct program *p = r->s.program;
    uint32_t hidden = p->config->hidden;
    uint64_t row_bytes = (uint64_t)r->ops->activation_bytes * hidden;
    const uint8_t *x = r->regs[REG_X];
    for (uint32_t i = 0; i < n; i++)
        memcpy((uint8_t *)r->gathered + i * row_bytes, x + rows[i] * row_bytes, row_bytes);
    const struct view g = {r->gathered, hidden};
    r->ops->norm(r->s.device, &(struct norm_params){.out = g,
                                                    .x = g,
                                                    .w = p->final_norm.norm.w,
                                                    .n_rows = n,
                                                    .n_parts = 1,
                                                    .dim = hidden,
                                                    .eps = p->config->norm_eps});
    return g;
}

enum status runner_normed(struct runner *r, const uint32_t *rows, uint32_t n, const float **out,
                          struct error *err)
{
    *out = NULL;
    if (interrupted(r))
        return error_set(err, STATUS_CLOSED, "interrupted");
    struct view g = normed(r, rows, n);
    TRY(r->ops->sync(r->s.device, err));
    *out = g.data;
    return STATUS_OK;
}

enum status runner_logits(struct runner *r, const uint32_t *rows, uint32_t n, float **out,
                          struct error *err)
{
    const struct program *p = r->s.program;
    const struct model_config *c = p->config;
    uint32_t n_own = program_vocab_part(p, p->rank).n;
    *out = NULL;
    TRY(check_ranks(r, err));
    if (interrupted(r))
        return error_set(err, STATUS_CLOSED, "interrupted");
    const struct view g = normed(r, rows, n);
    const struct view logits = {r->logits, r->logits_width};
    r->ops->linear(r->s.device,
                   &(struct linear_params){.x = g,
                                           .n_rows = n,
                                           .n_parts = 1,
                                           .parts = {{&p->weights[p->i_head].w, NULL, logits}}});
    if (c->final_softcap > 0)
        r->ops->softcap(r->s.device, logits, n, n_own, c->final_softcap);
    TRY(r->ops->sync(r->s.device, err));
    if (p->tp > 1)
        TRY(gather_logits(r, n, err));
    if (p->rank == 0)
        *out = r->logits;
    return STATUS_OK;
}
