/* Writes multi-head latent attention (DeepSeek-AI 2024) with absorbed projections of keys and
 * values. Queries are projected into the latent space of the cache, and the result of attention
 * is projected back. */
#include "worker/model/build_mla.h"

#define ATTN "model.layers.%u.self_attn."
static const struct tensor_name no_tensor;

void build_mla_widths(struct program *p)
{
    const struct mla_config *m = &p->config->mla;
    uint32_t n = p->heads.q.n;
    p->widths[REG_Q] = n * (m->nope + m->rope);
    p->widths[REG_LATENT] = n * (m->kv_rank + m->rope);
    if (p->widths[REG_LATENT] < m->q_rank)
        p->widths[REG_LATENT] = m->q_rank;
    p->widths[REG_K] = m->kv_rank + m->rope;
    p->widths[REG_A] = n * m->kv_rank;
    p->widths[REG_V] = n * m->v;
}

/* Adds w.out = w in, over all k inputs. */
static void project(struct program *p, uint32_t layer, enum reg in, struct op_weight w)
{
    struct op *o = build_op(p, OP_LINEAR, layer);
    o->in = in;
    w.layer = layer;
    w.k_len = w.k;
    build_part(p, o, &w);
}

/* Restricts the norm that was just added to the first dim elements, with the epsilon 1e-6.
 * transformers uses this epsilon in these two norms, whatever the configuration says. */
static void narrow_norm(struct program *p, uint32_t dim)
{
    p->ops[p->n_ops - 1].norm.dim = dim;
    p->ops[p->n_ops - 1].norm.eps = 1e-6f;
}

static void add_queries(struct program *p, uint32_t layer)
{
    const struct model_config *c = p->config;
    const struct mla_config *m = &c->mla;
    uint32_t d = m->nope + m->rope;
    struct op_weight w = {.name = TENSOR(ATTN "q_proj.weight", "blk.%u.attn_q.weight"),
                          .n = c->n_heads * d,
                          .n0 = p->heads.q.first * d,
                          .n_len = p->heads.q.n * d,
                          .k = c->hidden,
                          .out = REG_Q};
    if (m->q_rank == 0) {
        project(p, layer, REG_H, w);
        return;
    }
    project(p, layer, REG_H,
            (struct op_weight){.name = TENSOR(ATTN "q_a_proj.weight", "blk.%u.attn_q_a.weight"),
                               .n = m->q_rank,
                               .n_len = m->q_rank,
                               .k = c->hidden,
                               .out = REG_LATENT});
    build_norm(p, layer, REG_LATENT, REG_LATENT,
               TENSOR(ATTN "q_a_layernorm.weight", "blk.%u.attn_q_a_norm.weight"), false);
    narrow_norm(p, m->q_rank);
    w.name = TENSOR(ATTN "q_b_proj.weight", "blk.%u.attn_q_b.weight");
    w.k = m->q_rank;
    project(p, layer, REG_LATENT, w);
}

/* Adds the operators for the latent vector and the key that all heads share. Every rank computes
 * both as a whole. */
static void add_latent(struct program *p, uint32_t layer)
{
    const struct model_config *c = p->config;
    uint32_t n = c->mla.kv_rank + c->mla.rope;
    project(p, layer, REG_H,
            (struct op_weight){
                .name = TENSOR(ATTN "kv_a_proj_with_mqa.weight", "blk.%u.attn_kv_a_mqa.weight"),
                .n = n,
                .n_len = n,
                .k = c->hidden,
                .out = REG_K});
    build_norm(p, layer, REG_K, REG_K,
               TENSOR(ATTN "kv_a_layernorm.weight", "blk.%u.attn_kv_a_norm.weight"), false);
    narrow_norm(p, c->mla.kv_rank);
}

/* Adds the rotation of the dimensions of each head from `first` on. */
static void rotate(struct program *p, uint32_t layer, enum reg reg, uint32_t i_rope,
                   uint32_t n_heads, uint32_t head_dim, uint32_t first)
{
    struct op *o = build_op(p, OP_ROPE, layer);
    o->out = o->in = reg;
    o->rope.i_table = i_rope;
    o->rope.n_heads = n_heads;
    o->rope.head_dim = head_dim;
    o->rope.first = first;
}

/* Adds the multiplication of each head by its part of kv_b_proj: for keys, which is stored as
 * [nope][kv_rank], or for values. */
static void add_heads(struct program *p, uint32_t layer, bool keys, enum reg in, enum reg out)
{
    const struct model_config *c = p->config;
    const struct mla_config *m = &c->mla;
    uint32_t per_head = m->nope + m->v;
    struct op *o = build_op(p, OP_HEADS, layer);
    o->in = in;
    o->out = out;
    o->heads.first = p->n_weights;
    o->heads.n = p->heads.q.n;
    o->heads.in_stride = keys ? m->nope + m->rope : m->kv_rank;
    o->heads.out_stride = keys ? m->kv_rank + m->rope : m->v;
    for (uint32_t h = p->heads.q.first; h < p->heads.q.first + p->heads.q.n; h++) {
        struct op_weight w = {.name = TENSOR(ATTN "kv_b_proj.weight", "blk.%u.attn_kv_b.weight"),
                              .layer = layer,
                              .n = keys ? m->kv_rank : m->v,
                              .k = keys ? m->nope : m->kv_rank,
                              .out = out};
        w.n_len = w.n;
        w.k_len = w.k;
        if (m->split_kv_b) { /* the file has the parts for keys and values as two tensors */
            w.name.gguf = keys ? "blk.%u.attn_k_b.weight" : "blk.%u.attn_v_b.weight";
            w.part.of_experts = true;
            w.expert = h;
            w.n_experts = c->n_heads;
            (void)build_weight(p, &w);
            continue;
        }
        w.part = keys ? (struct tensor_part){.n_rows = m->kv_rank,
                                             .n_columns = c->n_heads * per_head,
                                             .first_in = h * per_head,
                                             .transposed = true}
                      : (struct tensor_part){.n_rows = c->n_heads * per_head,
                                             .n_columns = m->kv_rank,
                                             .first = h * per_head + m->nope};
        (void)build_weight(p, &w);
    }
}

void build_mla(struct program *p, uint32_t layer, uint32_t i_rope)
{
    const struct mla_config *m = &p->config->mla;
    uint32_t n = p->heads.q.n, latent = m->kv_rank + m->rope;
    add_queries(p, layer);
    add_latent(p, layer);
    rotate(p, layer, REG_Q, i_rope, n, m->nope + m->rope, m->nope);
    rotate(p, layer, REG_K, i_rope, 1, latent, m->kv_rank);
    add_heads(p, layer, true, REG_Q, REG_LATENT);
    struct op *o = build_op(p, OP_COPY_HEADS, layer);
    o->in = REG_Q;
    o->out = REG_LATENT;
    o->copy.n = m->rope;
    o->copy.n_heads = n;
    o->copy.in_stride = m->nope + m->rope;
    o->copy.in_first = m->nope;
    o->copy.out_stride = latent;
    o->copy.out_first = m->kv_rank;
    build_attention_of(p, layer, REG_LATENT, no_tensor);
    add_heads(p, layer, false, REG_A, REG_V);
}
