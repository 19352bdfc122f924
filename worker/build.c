#include "worker/build.h"

#include <math.h>

#include "common/base/mem.h"

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

static const struct tensor_name no_tensor;

static struct op *add_op(struct program *p, enum op_kind kind, uint32_t layer)
{
    if (p->n_ops == p->ops_cap) {
        p->ops_cap = p->ops_cap ? 2 * p->ops_cap : 256;
        p->ops = mem_realloc(p->ops, p->ops_cap * sizeof *p->ops);
    }
    struct op *o = &p->ops[p->n_ops++];
    *o = (struct op){.kind = kind, .layer = layer};
    return o;
}

static uint32_t add_weight(struct program *p, const struct op_weight *w)
{
    if (p->n_weights == p->weights_cap) {
        p->weights_cap = p->weights_cap ? 2 * p->weights_cap : 128;
        p->weights = mem_realloc(p->weights, p->weights_cap * sizeof *p->weights);
    }
    p->weights[p->n_weights] = *w;
    return p->n_weights++;
}

/* This rank's rows of a matrix that has one for each id. */
static uint32_t add_vocab_weight(struct program *p, struct tensor_name name)
{
    struct vocab_part part = program_vocab_part(p, p->rank);
    return add_weight(p, &(struct op_weight){.name = name,
                                             .n = p->config->vocab_size,
                                             .n0 = part.first,
                                             .n_len = part.n,
                                             .k = p->config->hidden,
                                             .k_len = p->config->hidden});
}

void build_embedding(struct program *p, struct tensor_name name, float scale)
{
    p->i_embedding = add_vocab_weight(p, name);
    p->embed_scale = scale;
}

void build_norm(struct program *p, uint32_t layer, enum reg out, enum reg in,
                struct tensor_name name, bool plus_one)
{
    struct op *o = add_op(p, OP_NORM, layer);
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
    o->norm.n_parts = reg == REG_Q ? p->n_heads : p->n_kv_heads;
    o->norm.dim = p->config->head_dim;
}

void build_qkv(struct program *p, uint32_t layer, enum reg in, const struct qkv_names *names)
{
    const struct model_config *c = p->config;
    uint32_t d = c->head_dim, kv_head = p->rank * p->n_kv_heads;
    if (c->n_kv_heads < p->tp) /* replicated: tp / n_kv_heads ranks share one */
        kv_head = p->rank / (p->tp / c->n_kv_heads);
    struct op_weight w[3] = {
        {.name = names->q, .bias_name = names->q_bias, .out = REG_Q, .n = c->n_heads * d},
        {.name = names->k, .bias_name = names->k_bias, .out = REG_K, .n = c->n_kv_heads * d},
        {.name = names->v, .bias_name = names->v_bias, .out = REG_V, .n = c->n_kv_heads * d},
    };
    struct op *o = add_op(p, OP_LINEAR, layer);
    o->in = in;
    o->linear.first = p->n_weights;
    o->linear.n = 3;
    for (int i = 0; i < 3; i++) {
        w[i].layer = layer;
        w[i].k = w[i].k_len = c->hidden;
        w[i].n0 = i == 0 ? p->rank * p->n_heads * d : kv_head * d;
        w[i].n_len = (i == 0 ? p->n_heads : p->n_kv_heads) * d;
        if (!c->attention_bias)
            w[i].bias_name = no_tensor;
        add_weight(p, &w[i]);
    }
}

/* HF transformers, modeling_rope_utils.py, "llama3": long waves are stretched by the factor, short
 * ones kept, those between blended. */
static double scale_llama3(const struct rope_config *r, double inv)
{
    double wave = 2.0 * M_PI / inv;
    double low = r->original_max_len / r->low_freq_factor;
    double high = r->original_max_len / r->high_freq_factor;
    if (wave < high)
        return inv;
    if (wave > low)
        return inv / r->factor;
    double smooth = (r->original_max_len / wave - r->low_freq_factor) /
                    (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * inv / r->factor + smooth * inv;
}

uint32_t build_rope_freqs(struct program *p, const struct rope_config *r, bool interleaved,
                          const char *gguf_divisors)
{
    struct rope_freqs *f = &p->ropes[p->n_ropes];
    uint32_t dim = p->config->head_dim;
    *f = (struct rope_freqs){.n = dim / 2,
                             .inv = mem_array(dim / 2, sizeof *f->inv),
                             .interleaved = interleaved,
                             .gguf_divisors = gguf_divisors};
    for (uint32_t i = 0; i < f->n; i++) {
        double inv = pow(r->theta, -2.0 * i / dim);
        if (r->scaling == ROPE_LINEAR)
            inv /= r->factor;
        else if (r->scaling == ROPE_LLAMA3)
            inv = scale_llama3(r, inv);
        f->inv[i] = (float)inv;
    }
    return p->n_ropes++;
}

void build_rope(struct program *p, uint32_t layer, uint32_t i_table)
{
    for (enum reg reg = REG_Q; reg <= REG_K; reg++) {
        struct op *o = add_op(p, OP_ROPE, layer);
        o->out = o->in = reg;
        o->rope.i_table = i_table;
        o->rope.n_heads = reg == REG_Q ? p->n_heads : p->n_kv_heads;
    }
}

void build_attention(struct program *p, uint32_t layer)
{
    add_op(p, OP_KV_WRITE, layer);
    struct op *o = add_op(p, OP_ATTENTION, layer);
    o->in = REG_Q;
    o->out = REG_A;
    o->attention.window = p->config->layer_is_window[layer] ? p->config->window : 0;
}

/* A matrix cut by inputs: every rank has its part of the sum; the bias is rank 0's. */
static void add_output(struct program *p, uint32_t layer, enum reg in, struct op_weight w)
{
    w.layer = layer;
    w.n = w.n_len = p->config->hidden;
    w.k_len = w.k / p->tp;
    w.k0 = p->rank * w.k_len;
    if (p->rank > 0)
        w.bias_name = no_tensor;
    struct op *o = add_op(p, OP_LINEAR, layer);
    o->in = in;
    o->linear.first = add_weight(p, &w);
    o->linear.n = 1;
    o->linear.add_ranks = p->tp > 1;
}

void build_attention_output(struct program *p, uint32_t layer, enum reg out,
                            struct tensor_name name, struct tensor_name bias)
{
    const struct model_config *c = p->config;
    add_output(p, layer, REG_A,
               (struct op_weight){.name = name,
                                  .bias_name = c->attention_bias ? bias : no_tensor,
                                  .k = c->n_heads * c->head_dim,
                                  .out = out});
}

void build_gated_mlp(struct program *p, uint32_t layer, enum reg out, enum reg in,
                     const struct mlp_names *names)
{
    const struct model_config *c = p->config;
    struct op *o = add_op(p, OP_LINEAR, layer);
    o->in = in;
    o->linear.first = p->n_weights;
    o->linear.n = 2;
    for (int i = 0; i < 2; i++) {
        uint32_t n = c->intermediate / p->tp;
        struct op_weight w = {.name = i == 0 ? names->gate : names->up,
                              .bias_name = i == 0 ? names->gate_bias : names->up_bias,
                              .layer = layer,
                              .n = c->intermediate,
                              .n0 = p->rank * n,
                              .n_len = n,
                              .k = c->hidden,
                              .k_len = c->hidden,
                              .out = i == 0 ? REG_GATE : REG_UP};
        if (!c->mlp_bias)
            w.bias_name = no_tensor;
        add_weight(p, &w);
    }
    o = add_op(p, OP_GATED, layer);
    o->out = REG_GATE;
    o->in = REG_UP;
    o->act = c->activation == MODEL_SILU ? ACT_SILU : ACT_GELU_TANH;
    add_output(p, layer, REG_GATE,
               (struct op_weight){.name = names->down,
                                  .bias_name = c->mlp_bias ? names->down_bias : no_tensor,
                                  .k = c->intermediate,
                                  .out = out});
}

void build_residual(struct program *p, uint32_t layer)
{
    struct op *o = add_op(p, OP_ADD, layer);
    o->out = REG_X;
    o->in = REG_H;
}

void build_head(struct program *p, struct tensor_name norm, bool plus_one, struct tensor_name head)
{
    p->final_norm = (struct op){.kind = OP_NORM, .out = REG_H, .in = REG_X};
    p->final_norm.norm.name = norm;
    p->final_norm.norm.n_parts = 1;
    p->final_norm.norm.dim = p->config->hidden;
    p->final_norm.norm.plus_one = plus_one;
    p->i_head = p->config->tied_embedding ? p->i_embedding : add_vocab_weight(p, head);
}
