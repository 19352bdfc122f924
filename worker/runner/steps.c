/* Finds the steps of a program once: operators that the device can run as one, tables of experts
 * and of heads, and the scratch memory that operators need. */
#include "worker/runner/steps.h"
#include "common/base/arena.h"
#include "common/base/mem.h"
#include "worker/runner/state.h"

enum { TABLE_ALIGN = 256 };

static uint32_t n_experts(const struct program *p)
{
    return p->expert_inner.n == 0 ? 0 : p->experts.n;
}

static uint64_t table_bytes(const struct program *p, const struct device *d, const struct op *o)
{
    uint32_t n = o->kind == OP_MOE ? n_experts(p) : o->kind == OP_HEADS ? o->heads.n : 0;
    return n > 0 && d->ops->loading.table_bytes
               ? align_up(d->ops->loading.table_bytes(d, n), TABLE_ALIGN)
               : 0;
}

uint64_t runner_tables_bytes(const struct program *p, const struct device *d)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_ops; i++)
        n += table_bytes(p, d, &p->ops[i]);
    return n;
}

struct scratch_shape runner_scratch_shape(const struct program *p, const struct device *d,
                                          uint32_t pass_rows)
{
    const struct model_config *c = p->config;
    struct scratch_shape s = {.n_rows = pass_rows,
                              .n_logits_rows = d->ops->logits_rows,
                              .n_heads = p->heads.q.n,
                              .n_kv_heads = p->most_kv_heads,
                              .head_dim = c->head_dim,
                              .v_dim = c->mla.kv_rank ? c->mla.kv_rank : c->head_dim,
                              .n_experts = c->moe.n_experts,
                              .n_chosen = c->moe.n_chosen,
                              .expert_width = c->moe.n_experts ? p->expert_inner.n : 0,
                              .hidden = c->hidden,
                              .is_latent = c->mla.kv_rank > 0,
                              .head_nope = c->mla.nope,
                              .head_v = c->mla.v,
                              .max_len = p->max_model_len};
    for (uint32_t i = 0; i < p->n_weights; i++) {
        uint64_t n = (uint64_t)p->weights[i].n_len * p->weights[i].k_len;
        s.most_weight_elements = n > s.most_weight_elements ? n : s.most_weight_elements;
    }
    return s;
}

static bool is_add_norm(const struct program *p, const struct op *o)
{
    const struct op *norm = o + 1;
    return o->kind == OP_ADD && norm->kind == OP_NORM && norm->in == o->out &&
           norm->out != o->out && norm->norm.whole == 0 && norm->norm.n_parts == 1 &&
           norm->norm.dim == p->widths[o->out];
}

static bool is_rope_kv(const struct op *o)
{
    return o[0].kind == OP_ROPE && o[0].in == REG_Q && o[1].kind == OP_ROPE && o[1].in == REG_K &&
           o[2].kind == OP_KV_WRITE && o[0].layer == o[2].layer;
}

/* Returns true for gate and up followed by their activation. No sum over the ranks may be
 * between the two operators. */
static bool is_linear_gated(const struct program *p, const struct op *o)
{
    const struct op *gated = o + 1;
    const struct op_weight *w = &p->weights[o->linear.first];
    return o->kind == OP_LINEAR && gated->kind == OP_GATED && o->linear.n == 2 &&
           !o->linear.add_ranks && w[0].out == gated->out && w[1].out == gated->in &&
           gated->out != gated->in && o->in != gated->out && w[0].n_len == gated->gated.dim &&
           w[1].n_len == gated->gated.dim;
}

/* Returns true for the sequence of operators that build_mla writes. */
static bool is_latent(const struct op *o)
{
    return o[0].kind == OP_HEADS && o[0].heads.n > 0 && o[1].kind == OP_COPY_HEADS &&
           o[2].kind == OP_KV_WRITE && o[3].kind == OP_ATTENTION && o[4].kind == OP_HEADS &&
           o[0].layer == o[4].layer;
}

static enum step_kind kind_of(const struct runner *r, uint32_t i_op)
{
    const struct program *p = r->s.program;
    uint32_t left = p->n_ops - i_op;
    if (r->ops->math.add_norm && left > 1 && is_add_norm(p, &p->ops[i_op]))
        return STEP_ADD_NORM;
    if (r->ops->math.rope_kv && left > 2 && is_rope_kv(&p->ops[i_op]))
        return STEP_ROPE_KV;
    if (r->ops->math.linear_gated && left > 1 && is_linear_gated(p, &p->ops[i_op]))
        return STEP_LINEAR_GATED;
    if (r->ops->math.latent && left > 4 && is_latent(&p->ops[i_op]))
        return STEP_LATENT;
    return STEP_ONE;
}

static void make_experts(const struct runner *r, const struct op *o, struct runner_step *s)
{
    const struct program *p = r->s.program;
    uint32_t n = n_experts(p);
    s->experts = mem_array(n, sizeof *s->experts);
    for (uint32_t e = 0; e < n; e++) {
        const struct op_weight *w = &p->weights[o->moe.first + 3 * e];
        s->experts[e] =
            (struct moe_expert){&w[0].w, &w[1].w, &w[2].w, w[0].bias, w[1].bias, w[2].bias};
    }
    if (s->table)
        r->ops->loading.expert_table(r->s.device, s->experts, n, s->table);
}

static void make_heads(const struct runner *r, const struct op *o, const struct runner_step *s)
{
    const struct weight **w = mem_array(o->heads.n, sizeof *w);
    for (uint32_t h = 0; h < o->heads.n; h++)
        w[h] = &r->s.program->weights[o->heads.first + h].w;
    if (s->table)
        r->ops->loading.head_table(r->s.device, w, o->heads.n, s->table);
    mem_free(w);
}

void runner_make_steps(struct runner *r)
{
    const struct program *p = r->s.program;
    uint8_t *at = r->tables;
    r->steps = mem_array(p->n_ops, sizeof *r->steps);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct op *o = &p->ops[i];
        struct runner_step *s = &r->steps[i];
        uint64_t n = table_bytes(p, r->s.device, o);
        *s = (struct runner_step){.kind = kind_of(r, i), .table = n > 0 ? at : NULL};
        at += n;
        if (o->kind == OP_MOE)
            make_experts(r, o, s);
        else if (o->kind == OP_HEADS)
            make_heads(r, o, s);
    }
}

void runner_free_steps(struct runner *r)
{
    for (uint32_t i = 0; r->steps && i < r->s.program->n_ops; i++)
        mem_free(r->steps[i].experts);
    mem_free(r->steps);
}
