/* Writes mixtures of experts: the router, the experts, and the shared expert that all tokens
 * use. */
#include "worker/model/build_moe.h"

static const struct tensor_name no_tensor;

/* Adds the router. It is small, so every rank has the whole router and all ranks choose the same
 * experts. */
static void add_router(struct program *p, uint32_t layer, const struct moe_names *names)
{
    const struct model_config *c = p->config;
    struct op *o = build_op(p, OP_LINEAR, layer);
    o->in = REG_H;
    build_part(p, o,
               &(struct op_weight){.name = names->router,
                                   .bias_name = c->moe.router_bias ? names->router_bias : no_tensor,
                                   .layer = layer,
                                   .n = c->moe.n_experts,
                                   .n_len = c->moe.n_experts,
                                   .k = c->hidden,
                                   .k_len = c->hidden,
                                   .out = REG_ROUTER});
    o = build_op(p, OP_ROUTE, layer);
    o->in = REG_ROUTER;
    o->route.bias_name = c->moe.choice_bias ? names->choice_bias : no_tensor;
}

/* Returns the gate (i = 0) or up (i = 1) matrix of an expert. */
static struct op_weight inner_matrix(const struct program *p, const struct moe_names *names, int i)
{
    const struct model_config *c = p->config;
    uint32_t width = c->moe.width;
    struct op_weight w = {.name = i == 0 ? names->gate : names->up,
                          .bias_name = i == 0 ? names->gate_bias : names->up_bias,
                          .n = width,
                          .n0 = p->expert_inner.first,
                          .n_len = p->expert_inner.n,
                          .k = c->hidden,
                          .k_len = c->hidden,
                          .out = i == 0 ? REG_GATE : REG_UP};
    if (names->in_turns && c->format != MODEL_GGUF)
        w.part = (struct tensor_part){.n_rows = 2 * width, .first = (uint32_t)i, .step = 2};
    return w;
}

static struct op_weight outer_matrix(const struct program *p, const struct moe_names *names)
{
    const struct model_config *c = p->config;
    /* the ranks' outputs are added, so exactly one rank has the bias */
    bool has_bias = p->expert_inner.n == c->moe.width || p->rank == 0;
    return (struct op_weight){.name = names->down,
                              .bias_name = has_bias ? names->down_bias : no_tensor,
                              .n = c->hidden,
                              .n_len = c->hidden,
                              .k = c->moe.width,
                              .k0 = p->expert_inner.first,
                              .k_len = p->expert_inner.n,
                              .out = REG_MADE};
}

static void add_experts(struct program *p, uint32_t layer, const struct moe_names *names)
{
    struct op *o = build_op(p, OP_MOE, layer);
    o->in = REG_H;
    o->out = REG_E;
    o->moe.first = p->n_weights;
    bool gguf = p->config->format == MODEL_GGUF;
    if (p->expert_inner.n == 0) /* this rank adds zeros to the sum */
        return;
    for (uint32_t e = 0; e < p->experts.n; e++)
        for (int i = 0; i < 3; i++) {
            struct op_weight w = i < 2 ? inner_matrix(p, names, i) : outer_matrix(p, names);
            w.layer = layer;
            w.expert = p->experts.first + e;
            w.n_experts = p->config->moe.n_experts;
            w.part.of_experts = names->stacked || gguf;
            w.part.transposed = names->transposed && !gguf;
            (void)build_weight(p, &w);
        }
}

/* Adds E += shared expert of H. */
static void add_shared(struct program *p, uint32_t layer, const struct moe_names *names)
{
    const struct model_config *c = p->config;
    uint32_t width = c->moe.shared_width;
    if (c->moe.shared_gate) {
        struct op *o = build_op(p, OP_LINEAR, layer);
        o->in = REG_H;
        build_part(p, o,
                   &(struct op_weight){.name = names->shared_gate,
                                       .layer = layer,
                                       .n = 1,
                                       .n_len = 1,
                                       .k = c->hidden,
                                       .k_len = c->hidden,
                                       .out = REG_SHARE});
    }
    build_gate_and_up(p, layer, REG_H, &names->shared, width, p->shared_inner);
    build_output(p, layer, REG_GATE,
                 (struct op_weight){.name = names->shared.down,
                                    .k = width,
                                    .k0 = p->shared_inner.first,
                                    .k_len = p->shared_inner.n,
                                    .out = REG_H},
                 false);
    if (c->moe.shared_gate) {
        struct op *o = build_op(p, OP_GATE_ROWS, layer);
        o->out = REG_H;
        o->in = REG_SHARE;
    }
    struct op *o = build_op(p, OP_ADD, layer);
    o->out = REG_E;
    o->in = REG_H;
}

void build_moe(struct program *p, uint32_t layer, const struct moe_names *names)
{
    add_router(p, layer, names);
    add_experts(p, layer, names);
    if (p->config->moe.shared_width > 0)
        add_shared(p, layer, names);
    if (p->tp > 1)
        build_op(p, OP_ADD_RANKS, layer)->out = REG_E;
}
