/* Runs the operators of a program over the rows of a pass, on the compute thread. runner.c calls
 * runner_run_step for each step. It fills a step's parameters from the program, the buffers and
 * the KV cache, and calls a function of the device's table. Invariants: an operator works on
 * r->n_rows rows of fixed buffers and allocates nothing. Fused steps give the same result as
 * their single operators. A rank without a part of a matrix writes zeros, so that sums over the
 * ranks are right. */
#include "worker/runner/ops.h"
#include "worker/lora/rows.h"
#include "worker/runner/state.h"

/* Returns a view of a buffer that begins at element `first` of each row. */
static struct view slice(const struct runner *r, enum reg reg, uint32_t first)
{
    struct view v = runner_view(r, reg);
    v.data = (uint8_t *)v.data + (size_t)first * r->ops->activation_bytes;
    return v;
}

/* Sums the squares of a vector that is split over the ranks. Each element is counted on one rank
 * only. */
static enum status sum_squares(struct runner *r, const struct op *o, struct error *err)
{
    struct view own = runner_view(r, o->in);
    own.data = (uint8_t *)own.data + (size_t)o->norm.own_first * r->ops->activation_bytes;
    r->ops->math.sum_squares(r->s.device, own, r->n_rows, o->norm.own, r->sums);
    struct collectives *c = r->s.collectives;
    enum status s = c->ops->all_reduce_floats(c, r->sums, r->n_rows, err);
    return s == STATUS_OK ? s : error_prefix(err, s, "layer %u", o->layer);
}

static struct norm_params norm_of(const struct runner *r, const struct op *o)
{
    return (struct norm_params){.out = runner_view(r, o->out),
                                .x = runner_view(r, o->in),
                                .w = o->norm.w,
                                .n_rows = r->n_rows,
                                .n_parts = o->norm.n_parts,
                                .dim = o->norm.dim,
                                .eps =
                                    o->norm.eps > 0 ? o->norm.eps : r->s.program->config->norm_eps,
                                .sums = o->norm.whole ? r->sums : NULL,
                                .whole = o->norm.whole};
}

static enum status run_norm(struct runner *r, const struct op *o, struct error *err)
{
    if (o->norm.whole)
        TRY(sum_squares(r, o, err));
    const struct norm_params p = norm_of(r, o);
    r->ops->math.norm(r->s.device, &p);
    return STATUS_OK;
}

static struct add_params add_of(const struct runner *r, const struct op *o)
{
    return (struct add_params){.x = runner_view(r, o->out),
                               .y = runner_view(r, o->in),
                               .n_rows = r->n_rows,
                               .dim = r->s.program->widths[o->out]};
}

static void run_add(struct runner *r, const struct op *o)
{
    const struct add_params p = add_of(r, o);
    r->ops->math.add(r->s.device, &p);
}

static void run_add_norm(struct runner *r, const struct op *o)
{
    const struct add_params add = add_of(r, o);
    const struct norm_params norm = norm_of(r, o + 1);
    r->ops->math.add_norm(r->s.device, &add, &norm);
}

/* Sums the buffer over the ranks. The rows of the last forward are contiguous. */
enum status runner_add_ranks(struct runner *r, enum reg reg, struct error *err)
{
    size_t n = (size_t)r->n_rows * r->s.program->widths[reg];
    struct collectives *c = r->s.collectives;
    return r->s.program->tp > 1 ? c->ops->all_reduce(c, r->regs[reg], n, err) : STATUS_OK;
}

/* Adds the adapters' outputs before the sum over the ranks: an adapter of a matrix that is cut
 * by inputs is cut in the same way. */
static void add_adapters(struct runner *r, const struct op *o)
{
    struct view outs[LINEAR_MAX_PARTS];
    for (uint32_t i = 0; i < o->linear.n; i++)
        outs[i] = runner_view(r, r->s.program->weights[o->linear.first + i].out);
    lora_set_add(r->s.loras, o->linear.first, o->linear.n, runner_view(r, o->in), outs);
}

static struct linear_params linear_of(const struct runner *r, const struct op *o)
{
    struct linear_params p = {
        .x = runner_view(r, o->in), .n_rows = r->n_rows, .n_parts = o->linear.n};
    for (uint32_t i = 0; i < o->linear.n; i++) {
        const struct op_weight *w = &r->s.program->weights[o->linear.first + i];
        p.parts[i] = (struct linear_part){.w = &w->w,
                                          .bias = w->bias,
                                          .out = runner_view(r, w->out),
                                          .to_float = w->out == REG_ROUTER,
                                          .exact = w->out == REG_ROUTER};
    }
    return p;
}

static enum status run_linear(struct runner *r, const struct op *o, struct error *err)
{
    const struct linear_params p = linear_of(r, o);
    if (p.n_parts > 0)
        r->ops->math.linear(r->s.device, &p);
    else
        r->ops->math.clear(r->s.device, runner_view(r, o->out), r->n_rows,
                           r->s.program->widths[o->out]);
    if (r->has_adapters)
        add_adapters(r, o);
    if (!o->linear.add_ranks)
        return STATUS_OK;
    enum status s = runner_add_ranks(r, o->out, err);
    return s == STATUS_OK ? s : error_prefix(err, s, "layer %u", o->layer);
}

static struct gated_params gated_of(const struct runner *r, const struct op *o)
{
    return (struct gated_params){.gate = runner_view(r, o->out),
                                 .up = runner_view(r, o->in),
                                 .out = runner_view(r, o->out),
                                 .n_rows = r->n_rows,
                                 .dim = o->gated.dim,
                                 .act = o->gated.act,
                                 .limit = r->s.program->config->swiglu_limit};
}

static void run_gated(struct runner *r, const struct op *o)
{
    const struct gated_params p = gated_of(r, o);
    r->ops->math.gated(r->s.device, &p);
}

static void run_linear_gated(struct runner *r, const struct op *o)
{
    const struct linear_params linear = linear_of(r, o);
    const struct gated_params gated = gated_of(r, o + 1);
    r->ops->math.linear_gated(r->s.device, &linear, &gated);
}

static struct rope_params rope_of(const struct runner *r, const struct op *o)
{
    const struct rope_freqs *f = &r->s.program->ropes[o->rope.i_table];
    return (struct rope_params){.x = slice(r, o->in, o->rope.first),
                                .n_rows = r->n_rows,
                                .n_heads = o->rope.n_heads,
                                .head_dim = o->rope.head_dim,
                                .n_rot = 2 * f->n,
                                .interleaved = f->interleaved,
                                .cos_sin = r->angles[o->rope.i_table]};
}

static void run_rope(struct runner *r, const struct op *o)
{
    const struct rope_params p = rope_of(r, o);
    r->ops->math.rope(r->s.device, &p);
}

static struct kv_write_params kv_write_of(const struct runner *r, const struct op *o,
                                          const struct row_batch *b)
{
    return (struct kv_write_params){.k = runner_view(r, REG_K),
                                    .v = runner_view(r, REG_V),
                                    .rows = b->kv_rows[r->s.program->kv_group_of[o->layer]],
                                    .n_rows = r->n_rows,
                                    .n_heads = r->s.program->heads.kv.n,
                                    .kv = kv_store_layer(r->s.kv, o->layer)};
}

static void run_kv_write(struct runner *r, const struct op *o, const struct row_batch *b)
{
    const struct kv_write_params p = kv_write_of(r, o, b);
    r->ops->math.kv_write(r->s.device, &p);
}

static void run_rope_kv(struct runner *r, const struct op *o, const struct row_batch *b)
{
    const struct rope_params q = rope_of(r, &o[0]), k = rope_of(r, &o[1]);
    const struct kv_write_params p = kv_write_of(r, &o[2], b);
    r->ops->math.rope_kv(r->s.device, &q, &k, &p);
}

static struct attention_params attention_of(const struct runner *r, const struct op *o,
                                            const struct row_batch *b)
{
    const struct program *g = r->s.program;
    return (struct attention_params){.q = runner_view(r, o->in),
                                     .out = runner_view(r, o->out),
                                     .rows = b->kv_rows[g->kv_group_of[o->layer]],
                                     .n_rows = r->n_rows,
                                     .n_heads = g->heads.q.n,
                                     .group = g->config->n_heads / g->config->n_kv_heads,
                                     .first_in_group = g->heads.first_in_group,
                                     .window = o->attention.window,
                                     .scale = g->config->attention_scale,
                                     .softcap = g->config->attention_softcap,
                                     .sinks = o->attention.sinks,
                                     .kv = kv_store_layer(r->s.kv, o->layer)};
}

static void run_attention(struct runner *r, const struct op *o, const struct row_batch *b)
{
    const struct attention_params p = attention_of(r, o, b);
    r->ops->math.attention(r->s.device, &p);
}

static struct heads_params heads_of(const struct runner *r, const struct op *o,
                                    const struct runner_step *step)
{
    return (struct heads_params){.x = slice(r, o->in, o->heads.in_first),
                                 .out = runner_view(r, o->out),
                                 .n_rows = r->n_rows,
                                 .n_heads = o->heads.n,
                                 .in_stride = o->heads.in_stride,
                                 .out_stride = o->heads.out_stride,
                                 .first = &r->s.program->weights[o->heads.first].w,
                                 .table = step->table};
}

static void run_heads(struct runner *r, const struct op *o, const struct runner_step *step)
{
    if (r->ops->math.heads && o->heads.n > 0) {
        const struct heads_params p = heads_of(r, o, step);
        r->ops->math.heads(r->s.device, &p);
        return;
    }
    for (uint32_t h = 0; h < o->heads.n; h++) {
        const struct weight *w = &r->s.program->weights[o->heads.first + h].w;
        struct view x = slice(r, o->in, o->heads.in_first + h * o->heads.in_stride);
        struct view out = slice(r, o->out, h * o->heads.out_stride);
        r->ops->math.linear(r->s.device, &(struct linear_params){.x = x,
                                                                 .n_rows = r->n_rows,
                                                                 .n_parts = 1,
                                                                 .parts = {{.w = w, .out = out}}});
    }
}

static struct copy_heads_params copy_heads_of(const struct runner *r, const struct op *o)
{
    return (struct copy_heads_params){.from = slice(r, o->in, o->copy.in_first),
                                      .to = slice(r, o->out, o->copy.out_first),
                                      .n_rows = r->n_rows,
                                      .n_heads = o->copy.n_heads,
                                      .from_stride = o->copy.in_stride,
                                      .to_stride = o->copy.out_stride,
                                      .n = o->copy.n};
}

static void run_copy_heads(struct runner *r, const struct op *o)
{
    const struct copy_heads_params p = copy_heads_of(r, o);
    r->ops->math.copy_heads(r->s.device, &p);
}

static void run_latent(struct runner *r, const struct op *o, const struct runner_step *steps,
                       const struct row_batch *b)
{
    const struct latent_params p = {.keys = heads_of(r, &o[0], &steps[0]),
                                    .rope = copy_heads_of(r, &o[1]),
                                    .write = kv_write_of(r, &o[2], b),
                                    .attention = attention_of(r, &o[3], b),
                                    .values = heads_of(r, &o[4], &steps[4])};
    r->ops->math.latent(r->s.device, &p);
}

static void run_route(struct runner *r, const struct op *o)
{
    static const enum route_scores scores[] = {
        [MOE_SOFTMAX] = ROUTE_SOFTMAX,
        [MOE_SOFTMAX_OF_CHOSEN] = ROUTE_SOFTMAX_OF_CHOSEN,
        [MOE_SIGMOID] = ROUTE_SIGMOID,
    };
    const struct moe_config *m = &r->s.program->config->moe;
    r->ops->math.route(r->s.device, &(struct route_params){.logits = runner_view(r, o->in),
                                                           .float_logits = true,
                                                           .bias = o->route.bias,
                                                           .n_rows = r->n_rows,
                                                           .n_experts = m->n_experts,
                                                           .n_chosen = m->n_chosen,
                                                           .n_groups = m->n_groups,
                                                           .n_groups_chosen = m->n_groups_chosen,
                                                           .scores = scores[m->scores],
                                                           .groups_by_two = m->groups_by_two,
                                                           .normalise = m->normalise,
                                                           .factor = m->factor,
                                                           .ids = r->expert_ids,
                                                           .shares = r->expert_shares});
}

static void run_moe(struct runner *r, const struct op *o, const struct runner_step *step)
{
    const struct program *p = r->s.program;
    const struct model_config *c = p->config;
    enum activation act = c->activation == MODEL_SILU ? ACT_SILU : ACT_GELU_TANH;
    r->ops->math.moe(r->s.device,
                     &(struct moe_params){.x = runner_view(r, o->in),
                                          .out = runner_view(r, o->out),
                                          .n_rows = r->n_rows,
                                          .dim = c->hidden,
                                          .n_chosen = c->moe.n_chosen,
                                          .first = p->experts.first,
                                          .n = p->expert_inner.n == 0 ? 0 : p->experts.n,
                                          .ids = r->expert_ids,
                                          .shares = r->expert_shares,
                                          .experts = step->experts,
                                          .act = c->swiglu_limit > 0 ? ACT_SWIGLU_LIMITED : act,
                                          .limit = c->swiglu_limit,
                                          .gathered = runner_view(r, REG_PICKED),
                                          .gate = runner_view(r, REG_GATE),
                                          .up = runner_view(r, REG_UP),
                                          .result = runner_view(r, REG_MADE),
                                          .list = r->expert_list,
                                          .table = step->table});
}

static enum status run_op(struct runner *r, uint32_t i_op, const struct row_batch *b,
                          struct error *err)
{
    const struct op *o = &r->s.program->ops[i_op];
    const struct runner_step *step = &r->steps[i_op];
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
        run_gated(r, o);
        break;
    case OP_ADD:
        run_add(r, o);
        break;
    case OP_HEADS:
        run_heads(r, o, step);
        break;
    case OP_COPY_HEADS:
        run_copy_heads(r, o);
        break;
    case OP_ROUTE:
        run_route(r, o);
        break;
    case OP_MOE:
        run_moe(r, o, step);
        break;
    case OP_GATE_ROWS:
        r->ops->math.gate_rows(r->s.device, runner_view(r, o->out), r->n_rows,
                               r->s.program->config->hidden, runner_view(r, o->in));
        break;
    case OP_ADD_RANKS:
        return runner_add_ranks(r, o->out, err);
    case OP_KIND_COUNT:
        break;
    }
    return STATUS_OK;
}

enum status runner_run_step(struct runner *r, uint32_t *i_op, const struct row_batch *b,
                            struct error *err)
{
    const struct op *o = &r->s.program->ops[*i_op];
    switch (r->steps[*i_op].kind) {
    case STEP_ADD_NORM:
        run_add_norm(r, o);
        *i_op += 2;
        return STATUS_OK;
    case STEP_ROPE_KV:
        run_rope_kv(r, o, b);
        *i_op += 3;
        return STATUS_OK;
    case STEP_LINEAR_GATED:
        if (r->has_adapters) /* adapters are added between the two operators */
            break;
        run_linear_gated(r, o);
        *i_op += 2;
        return STATUS_OK;
    case STEP_LATENT:
        run_latent(r, o, &r->steps[*i_op], b);
        *i_op += 5;
        return STATUS_OK;
    case STEP_ONE:
        break;
    }
    return run_op(r, (*i_op)++, b, err);
}
