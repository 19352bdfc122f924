/* Appends operators and weights to a program (see build.h). A family calls these functions layer
 * by layer, in the order in which the runner will execute the operators. Every weight is cut for
 * this rank when it is added. Invariants: the lists grow and are owned by the program, so a
 * pointer into them is valid only until the next operator or weight. A matrix is added only on
 * ranks that have a part of it. Only rank 0 adds a bias whose output is summed over the ranks. */
#include "worker/model/build.h"

#include "common/base/mem.h"
#include "worker/model/rope.h"

const struct qkv_names usual_qkv = {
    .q = {"model.layers.%u.self_attn.q_proj.weight", "blk.%u.attn_q.weight"},
    .k = {"model.layers.%u.self_attn.k_proj.weight", "blk.%u.attn_k.weight"},
    .v = {"model.layers.%u.self_attn.v_proj.weight", "blk.%u.attn_v.weight"},
    .q_bias = {"model.layers.%u.self_attn.q_proj.bias", "blk.%u.attn_q.bias"},
    .k_bias = {"model.layers.%u.self_attn.k_proj.bias", "blk.%u.attn_k.bias"},
    .v_bias = {"model.layers.%u.self_attn.v_proj.bias", "blk.%u.attn_v.bias"},
};
const struct mlp_names usual_mlp = {
    .gate = {"model.layers.%u.mlp.gate_proj.weight", "blk.%u.ffn_gate.weight"},
    .up = {"model.layers.%u.mlp.up_proj.weight", "blk.%u.ffn_up.weight"},
    .down = {"model.layers.%u.mlp.down_proj.weight", "blk.%u.ffn_down.weight"},
    .gate_bias = {"model.layers.%u.mlp.gate_proj.bias", "blk.%u.ffn_gate.bias"},
    .up_bias = {"model.layers.%u.mlp.up_proj.bias", "blk.%u.ffn_up.bias"},
    .down_bias = {"model.layers.%u.mlp.down_proj.bias", "blk.%u.ffn_down.bias"},
};

const struct output_names usual_output = {
    .weight = {"model.layers.%u.self_attn.o_proj.weight", "blk.%u.attn_output.weight"},
    .bias = {"model.layers.%u.self_attn.o_proj.bias", "blk.%u.attn_output.bias"},
};

static const struct tensor_name no_tensor;

struct op *build_op(struct program *p, enum op_kind kind, uint32_t layer)
{
    if (p->n_ops == p->ops_cap) {
        p->ops_cap = p->ops_cap ? 2 * p->ops_cap : 256;
        p->ops = mem_realloc(p->ops, p->ops_cap * sizeof *p->ops);
    }
    struct op *o = &p->ops[p->n_ops++];
    *o = (struct op){.kind = kind, .layer = layer};
    return o;
}

uint32_t build_weight(struct program *p, const struct op_weight *w)
{
    if (p->n_weights == p->weights_cap) {
        p->weights_cap = p->weights_cap ? 2 * p->weights_cap : 128;
        p->weights = mem_realloc(p->weights, p->weights_cap * sizeof *p->weights);
    }
    p->weights[p->n_weights] = *w;
    return p->n_weights++;
}

void build_part(struct program *p, struct op *o, const struct op_weight *w)
{
    o->out = w->out;
    if (w->n_len == 0 || w->k_len == 0)
        return;
    uint32_t i = build_weight(p, w);
    if (o->linear.n++ == 0)
        o->linear.first = i;
}

/* Adds a matrix with one row per id, cut to this rank's rows. */
static uint32_t add_vocab_weight(struct program *p, struct tensor_name name)
{
    struct cut_range part = program_vocab_part(p, p->rank);
    return build_weight(p, &(struct op_weight){.name = name,
                                               .n = p->config->vocab_size,
                                               .n0 = part.first,
                                               .n_len = part.n,
                                               .k = p->config->hidden,
                                               .k_len = p->config->hidden});
}

void build_embedding(struct program *p, struct tensor_name name, float scale)
{
    if (program_is_first(p) || (program_is_last(p) && p->config->tied_embedding))
        p->i_embedding = add_vocab_weight(p, name);
    p->embed_scale = scale;
}

void build_norm(struct program *p, uint32_t layer, enum reg out, enum reg in,
                struct tensor_name name, bool plus_one)
{
    struct op *o = build_op(p, OP_NORM, layer);
    o->out = out;
    o->in = in;
    o->norm.name = name;
    o->norm.n_parts = 1;
    o->norm.dim = p->config->hidden;
    o->norm.plus_one = plus_one;
}

void build_head_norm(struct program *p, uint32_t layer, enum reg reg, struct tensor_name name,
                     bool plus_one)
{
    build_norm(p, layer, reg, reg, name, plus_one);
    struct op *o = &p->ops[p->n_ops - 1];
    o->norm.n_parts = reg == REG_Q ? p->heads.q.n : p->heads.kv.n;
    o->norm.dim = p->config->head_dim;
}

void build_head_norms(struct program *p, uint32_t layer, bool plus_one)
{
    build_head_norm(p, layer, REG_Q,
                    TENSOR("model.layers.%u.self_attn.q_norm.weight", "blk.%u.attn_q_norm.weight"),
                    plus_one);
    build_head_norm(p, layer, REG_K,
                    TENSOR("model.layers.%u.self_attn.k_norm.weight", "blk.%u.attn_k_norm.weight"),
                    plus_one);
}

/* Adds a norm over all heads. A KV head may be on several ranks. Only the rank with the head's
 * first query head counts its squares. */
void build_whole_norm(struct program *p, uint32_t layer, enum reg reg, struct tensor_name name,
                      bool plus_one)
{
    const struct model_config *c = p->config;
    uint32_t d = c->head_dim;
    struct cut_range part = reg == REG_Q ? p->heads.q : p->heads.kv;
    uint32_t not_own = reg == REG_K && p->heads.first_in_group > 0;
    build_norm(p, layer, reg, reg, name, plus_one);
    struct op *o = &p->ops[p->n_ops - 1];
    o->norm.dim = part.n * d;
    if (p->tp == 1)
        return;
    if (reg == REG_K && p->heads.q.n == 0)
        not_own = part.n;
    o->norm.whole = (reg == REG_Q ? c->n_heads : c->n_kv_heads) * d;
    o->norm.first = part.first * d;
    o->norm.own_first = not_own * d;
    o->norm.own = (part.n - not_own) * d;
}

void build_qkv(struct program *p, uint32_t layer, enum reg in, const struct qkv_names *names)
{
    const struct model_config *c = p->config;
    uint32_t d = c->head_dim, n_q = c->n_heads * d, n_kv = c->n_kv_heads * d;
    struct op_weight w[3] = {
        {.name = names->q, .bias_name = names->q_bias, .out = REG_Q, .n = n_q},
        {.name = names->k, .bias_name = names->k_bias, .out = REG_K, .n = n_kv},
        {.name = names->v, .bias_name = names->v_bias, .out = REG_V, .n = n_kv},
    };
    struct op *o = build_op(p, OP_LINEAR, layer);
    o->in = in;
    for (int i = 0; i < 3; i++) {
        struct cut_range heads = i == 0 ? p->heads.q : p->heads.kv;
        w[i].layer = layer;
        w[i].k = w[i].k_len = c->hidden;
        w[i].n0 = heads.first * d;
        w[i].n_len = heads.n * d;
        if (names->fused) {
            w[i].part = (struct tensor_part){.n_rows = n_q + 2 * n_kv,
                                             .first = i == 0 ? 0 : n_q + (uint32_t)(i - 1) * n_kv};
        }
        if (!c->attention_bias)
            w[i].bias_name = no_tensor;
        build_part(p, o, &w[i]);
    }
}

uint32_t build_rope_freqs(struct program *p, const struct rope_config *r, bool interleaved,
                          const char *gguf_divisors)
{
    struct rope_freqs *f = &p->ropes[p->n_ropes];
    *f = (struct rope_freqs){.n = r->n_rot / 2,
                             .inv = mem_array(r->n_rot / 2, sizeof *f->inv),
                             .interleaved = interleaved,
                             .gguf_divisors = gguf_divisors};
    rope_frequencies(r, p->max_model_len, f->inv, &f->scale);
    return p->n_ropes++;
}

void build_rope(struct program *p, uint32_t layer, uint32_t i_table)
{
    for (enum reg reg = REG_Q; reg <= REG_K; reg++) {
        struct op *o = build_op(p, OP_ROPE, layer);
        o->out = o->in = reg;
        o->rope.i_table = i_table;
        o->rope.n_heads = reg == REG_Q ? p->heads.q.n : p->heads.kv.n;
        o->rope.head_dim = p->config->head_dim;
    }
}

void build_attention_of(struct program *p, uint32_t layer, enum reg queries,
                        struct tensor_name sinks)
{
    build_op(p, OP_KV_WRITE, layer);
    struct op *o = build_op(p, OP_ATTENTION, layer);
    o->in = queries;
    o->out = REG_A;
    o->attention.window = p->config->layer_is_window[layer] ? p->config->window : 0;
    o->attention.sinks_name = sinks;
}

void build_attention(struct program *p, uint32_t layer)
{
    build_attention_of(p, layer, REG_Q, no_tensor);
}

/* Adds an output projection. Only rank 0 has the bias, because the ranks' outputs are added. */
void build_output(struct program *p, uint32_t layer, enum reg in, struct op_weight w,
                  bool add_ranks)
{
    w.layer = layer;
    w.n = w.n_len = p->config->hidden;
    if (p->rank > 0)
        w.bias_name = no_tensor;
    struct op *o = build_op(p, OP_LINEAR, layer);
    o->in = in;
    o->linear.add_ranks = add_ranks && p->tp > 1;
    build_part(p, o, &w);
}

void build_attention_output(struct program *p, uint32_t layer, enum reg out,
                            const struct output_names *names)
{
    const struct model_config *c = p->config;
    uint32_t d = c->mla.kv_rank ? c->mla.v : c->head_dim;
    build_output(p, layer, c->mla.kv_rank ? REG_V : REG_A,
                 (struct op_weight){.name = names->weight,
                                    .bias_name = c->attention_out_bias ? names->bias : no_tensor,
                                    .k = c->n_heads * d,
                                    .k0 = p->heads.q.first * d,
                                    .k_len = p->heads.q.n * d,
                                    .out = out},
                 true);
}

void build_gate_and_up(struct program *p, uint32_t layer, enum reg in,
                       const struct mlp_names *names, uint32_t width, struct cut_range part)
{
    const struct model_config *c = p->config;
    struct op *o = build_op(p, OP_LINEAR, layer);
    o->in = in;
    for (int i = 0; i < 2; i++) {
        struct op_weight w = {.name = i == 0 ? names->gate : names->up,
                              .bias_name = i == 0 ? names->gate_bias : names->up_bias,
                              .layer = layer,
                              .n = width,
                              .n0 = part.first,
                              .n_len = part.n,
                              .k = c->hidden,
                              .k_len = c->hidden,
                              .out = i == 0 ? REG_GATE : REG_UP};
        if (names->fused)
            w.part = (struct tensor_part){.n_rows = 2 * width, .first = i == 0 ? 0 : width};
        if (!c->mlp_bias)
            w.bias_name = no_tensor;
        build_part(p, o, &w);
    }
    o = build_op(p, OP_GATED, layer);
    o->out = REG_GATE;
    o->in = REG_UP;
    o->gated.act = c->activation == MODEL_SILU ? ACT_SILU : ACT_GELU_TANH;
    o->gated.dim = part.n;
}

void build_gated_mlp(struct program *p, uint32_t layer, enum reg out, enum reg in,
                     const struct mlp_names *names)
{
    const struct model_config *c = p->config;
    build_gate_and_up(p, layer, in, names, c->intermediate, p->inner);
    build_output(p, layer, REG_GATE,
                 (struct op_weight){.name = names->down,
                                    .bias_name = c->mlp_bias ? names->down_bias : no_tensor,
                                    .k = c->intermediate,
                                    .k0 = p->inner.first,
                                    .k_len = p->inner.n,
                                    .out = out},
                 true);
}

void build_residual_of(struct program *p, uint32_t layer, enum reg from)
{
    struct op *o = build_op(p, OP_ADD, layer);
    o->out = REG_X;
    o->in = from;
}

void build_residual(struct program *p, uint32_t layer)
{
    build_residual_of(p, layer, REG_H);
}

void build_head(struct program *p, struct tensor_name norm, bool plus_one, struct tensor_name head)
{
    if (!program_is_last(p))
        return;
    p->final_norm = (struct op){.kind = OP_NORM, .out = REG_H, .in = REG_X};
    p->final_norm.norm.name = norm;
    p->final_norm.norm.n_parts = 1;
    p->final_norm.norm.dim = p->config->hidden;
    p->final_norm.norm.plus_one = plus_one;
    p->i_head = p->config->tied_embedding ? p->i_embedding : add_vocab_weight(p, head);
}
