#include "worker/runner.h"

#include <string.h>

#include "common/base/mem.h"
#include "worker/comm/comm.h"

/* One piece of device memory, cut up once. */
struct runner {
    struct runner_setup s;
    const struct ops *ops;
    uint8_t *memory;
    uint64_t n_bytes;
    void *regs[REG_COUNT];
    void *gathered;        /* [RUNNER_LOGITS_ROWS][hidden] */
    float *logits;         /* [RUNNER_LOGITS_ROWS][logits_width] */
    uint32_t logits_width; /* the vocabulary on rank 0, elsewhere the rank's part of it */
    float *angles[PROGRAM_MAX_ROPES]; /* [pass_rows][n][2] */
    float *sums;                      /* [pass_rows] of squares, of a norm that the ranks share */
    uint32_t n_rows;                  /* of the last forward */
};

static uint64_t aligned(uint64_t n)
{
    return (n + 63) / 64 * 64;
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
    used += aligned(e * c->hidden * RUNNER_LOGITS_ROWS);
    r->logits = (float *)(void *)(r->memory + used);
    r->logits_width = p->rank == 0 ? c->vocab_size : program_vocab_part(p, p->rank).n;
    used += aligned(sizeof(float) * r->logits_width * RUNNER_LOGITS_ROWS);
    for (uint32_t i = 0; i < p->n_ropes; i++) {
        r->angles[i] = (float *)(void *)(r->memory + used);
        used += aligned(2 * sizeof(float) * p->ropes[i].n * pass_rows);
    }
    r->sums = (float *)(void *)(r->memory + used);
    used += aligned(sizeof(float) * pass_rows);
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
    *out = r;
    return STATUS_OK;
}

void runner_free(struct runner *r)
{
    if (!r)
        return;
    r->ops->release(r->s.device, r->memory, r->n_bytes);
    mem_free(r);
}

static struct view view_of(const struct runner *r, enum reg reg)
{
    return (struct view){r->regs[reg], r->s.program->widths[reg]};
}

/* The squares of a vector that the ranks share, each element's once. */
static enum status sum_squares(struct runner *r, const struct op *o, struct error *err)
{
    struct view own = view_of(r, o->in);
    own.data = (uint8_t *)own.data + (size_t)o->norm.own_first * r->ops->activation_bytes;
    r->ops->sum_squares(r->s.device, own, r->n_rows, o->norm.own, r->sums);
    enum status s = comm_all_reduce(r->s.comm, r->sums, r->n_rows, err);
    return s == STATUS_OK ? s : error_prefix(err, s, "layer %u", o->layer);
}

static enum status run_norm(struct runner *r, const struct op *o, struct error *err)
{
    if (o->norm.whole)
        TRY(sum_squares(r, o, err));
    const struct norm_params p = {.out = view_of(r, o->out),
                                  .x = view_of(r, o->in),
                                  .w = o->norm.w,
                                  .n_rows = r->n_rows,
                                  .n_parts = o->norm.n_parts,
                                  .dim = o->norm.dim,
                                  .eps = r->s.program->config->norm_eps,
                                  .sums = o->norm.whole ? r->sums : NULL,
                                  .whole = o->norm.whole};
    r->ops->norm(r->s.device, &p);
    return STATUS_OK;
}

/* The ranks' parts of the last forward's rows of reg, which follow each other without a gap. */
static enum status add_ranks(struct runner *r, enum reg reg, struct error *err)
{
    size_t n = (size_t)r->n_rows * r->s.program->widths[reg];
    return r->s.program->tp > 1 ? comm_all_reduce(r->s.comm, r->regs[reg], n, err) : STATUS_OK;
}

/* Sums of other ranks than the program was cut for would be numbers like any others. */
static enum status check_ranks(const struct runner *r, struct error *err)
{
    const struct program *p = r->s.program;
    uint32_t rank = r->s.comm ? comm_rank(r->s.comm) : 0;
    uint32_t n_ranks = r->s.comm ? comm_n_ranks(r->s.comm) : 1;
    if (p->tp == 1 || (rank == p->rank && n_ranks == p->tp))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "the shard is rank %u of %u, the communicator rank %u of %u", p->rank, p->tp,
                     rank, n_ranks);
}

static enum status run_linear(struct runner *r, const struct op *o, struct error *err)
{
    struct linear_params p = {.x = view_of(r, o->in), .n_rows = r->n_rows, .n_parts = o->linear.n};
    for (uint32_t i = 0; i < o->linear.n; i++) {
        const struct op_weight *w = &r->s.program->weights[o->linear.first + i];
        p.parts[i] = (struct linear_part){&w->w, w->bias, view_of(r, w->out)};
    }
    if (p.n_parts > 0)
        r->ops->linear(r->s.device, &p);
    else
        r->ops->clear(r->s.device, view_of(r, o->out), r->n_rows, r->s.program->widths[o->out]);
    if (!o->linear.add_ranks)
        return STATUS_OK;
    enum status s = add_ranks(r, o->out, err);
    return s == STATUS_OK ? s : error_prefix(err, s, "layer %u", o->layer);
}

static void run_rope(struct runner *r, const struct op *o)
{
    const struct rope_freqs *f = &r->s.program->ropes[o->rope.i_table];
    const struct rope_params p = {.x = view_of(r, o->in),
                                  .n_rows = r->n_rows,
                                  .n_heads = o->rope.n_heads,
                                  .head_dim = r->s.program->config->head_dim,
                                  .n_rot = 2 * f->n,
                                  .interleaved = f->interleaved,
                                  .cos_sin = r->angles[o->rope.i_table]};
    r->ops->rope(r->s.device, &p);
}

static void run_kv_write(struct runner *r, const struct op *o, const struct row_batch *b)
{
    const struct kv_write_params p = {.k = view_of(r, REG_K),
                                      .v = view_of(r, REG_V),
                                      .rows = b->kv_rows[r->s.program->kv_group_of[o->layer]],
                                      .n_rows = r->n_rows,
                                      .n_heads = r->s.program->heads.kv.n,
                                      .kv = kv_store_layer(r->s.kv, o->layer)};
    r->ops->kv_write(r->s.device, &p);
}

static void run_attention(struct runner *r, const struct op *o, const struct row_batch *b)
{
    const struct program *g = r->s.program;
    const struct attention_params p = {.q = view_of(r, o->in),
                                       .out = view_of(r, o->out),
                                       .rows = b->kv_rows[g->kv_group_of[o->layer]],
                                       .n_rows = r->n_rows,
                                       .n_heads = g->heads.q.n,
                                       .group = g->config->n_heads / g->config->n_kv_heads,
                                       .first_in_group = g->heads.first_in_group,
                                       .window = o->attention.window,
                                       .scale = g->config->attention_scale,
                                       .softcap = g->config->attention_softcap,
                                       .kv = kv_store_layer(r->s.kv, o->layer)};
    r->ops->attention(r->s.device, &p);
}

static enum status run_op(struct runner *r, const struct op *o, const struct row_batch *b,
                          struct error *err)
{
    switch (o->kind) {
    case OP_NORM:
        return run_norm(r, o, err);
    case OP_LINEAR:
        return run_linear(r, o, err);
    case OP_ROPE:
        run_rope(r, o);
        break;
    case OP_KV_WRITE:
        run_kv_write(r, o, b);
        break;
    case OP_ATTENTION:
        run_attention(r, o, b);
        break;
    case OP_GATED:
        r->ops->gated(r->s.device, &(struct gated_params){.gate = view_of(r, o->out),
                                                          .up = view_of(r, o->in),
                                                          .out = view_of(r, o->out),
                                                          .n_rows = r->n_rows,
                                                          .dim = r->s.program->widths[o->out],
                                                          .act = o->act});
        break;
    case OP_ADD:
        r->ops->add(r->s.device, &(struct add_params){.x = view_of(r, o->out),
                                                      .y = view_of(r, o->in),
                                                      .n_rows = r->n_rows,
                                                      .dim = r->s.program->widths[o->out]});
        break;
    case OP_KIND_COUNT:
        break;
    }
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
    r->ops->embed(r->s.device, &(struct embed_params){.out = view_of(r, REG_X),
                                                      .w = &p->weights[p->i_embedding].w,
                                                      .ids = b->ids,
                                                      .n_rows = b->n_rows,
                                                      .first = program_vocab_part(p, p->rank).first,
                                                      .scale = p->embed_scale});
    enum status s = add_ranks(r, REG_X, err);
    return s == STATUS_OK ? s : error_prefix(err, s, "embedding");
}

enum status runner_forward(struct runner *r, const struct row_batch *b, struct error *err)
{
    const struct program *p = r->s.program;
    TRY(check_ranks(r, err));
    r->n_rows = b->n_rows;
    TRY(embed(r, b, err));
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
        TRY(run_op(r, &p->ops[i], b, err));
    }
    return r->ops->sync(r->s.device, err);
}

struct view runner_hidden(const struct runner *r)
{
    return view_of(r, REG_X);
}

/* Every rank's part of each row to rank 0, which has its own at its place: the first columns. */
static enum status gather_logits(struct runner *r, uint32_t n, struct error *err)
{
    const struct program *p = r->s.program;
    enum status s = STATUS_OK;
    for (uint32_t i = 0; i < n && s == STATUS_OK; i++) {
        struct comm_part parts[COMM_MAX_RANKS] = {{0}};
        float *row = r->logits + (size_t)i * r->logits_width;
        for (uint32_t rank = 0; rank < p->tp; rank++) {
            struct cut_range v = program_vocab_part(p, rank);
            parts[rank].n_bytes = v.n * sizeof *row;
            if (p->rank == 0)
                parts[rank].data = row + v.first;
            else if (p->rank == rank)
                parts[rank].data = row;
        }
        s = comm_gather(r->s.comm, 0, parts, err);
    }
    return s == STATUS_OK ? s : error_prefix(err, s, "logits");
}

enum status runner_logits(struct runner *r, const uint32_t *rows, uint32_t n, float **out,
                          struct error *err)
{
    const struct program *p = r->s.program;
    const struct model_config *c = p->config;
    uint64_t row_bytes = (uint64_t)r->ops->activation_bytes * c->hidden;
    const uint8_t *x = r->regs[REG_X];
    uint32_t n_own = program_vocab_part(p, p->rank).n;
    *out = NULL;
    TRY(check_ranks(r, err));
    if (interrupted(r))
        return error_set(err, STATUS_CLOSED, "interrupted");
    for (uint32_t i = 0; i < n; i++)
        memcpy((uint8_t *)r->gathered + i * row_bytes, x + rows[i] * row_bytes, row_bytes);
    const struct view g = {r->gathered, c->hidden};
    const struct view logits = {r->logits, r->logits_width};
    r->ops->norm(r->s.device, &(struct norm_params){.out = g,
                                                    .x = g,
                                                    .w = p->final_norm.norm.w,
                                                    .n_rows = n,
                                                    .n_parts = 1,
                                                    .dim = c->hidden,
                                                    .eps = c->norm_eps});
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
