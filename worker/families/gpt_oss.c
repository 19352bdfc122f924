#include "worker/build.h"

#define MLP "model.layers.%u.mlp."

/* gpt-oss (OpenAI 2025): windows in every second layer, a sink for each head, biases everywhere,
 * and experts whose matrices are stacked, with gate and up in turns. */
void family_gpt_oss(struct program *p)
{
    static const struct moe_names names = {.router = {MLP "router.weight", NULL},
                                           .router_bias = {MLP "router.bias", NULL},
                                           .gate = {MLP "experts.gate_up_proj", NULL},
                                           .up = {MLP "experts.gate_up_proj", NULL},
                                           .down = {MLP "experts.down_proj", NULL},
                                           .gate_bias = {MLP "experts.gate_up_proj_bias", NULL},
                                           .up_bias = {MLP "experts.gate_up_proj_bias", NULL},
                                           .down_bias = {MLP "experts.down_proj_bias", NULL},
                                           .stacked = true,
                                           .transposed = true,
                                           .in_turns = true};
    const struct model_config *c = p->config;
    build_embedding(p, TENSOR("model.embed_tokens.weight", NULL), 1.0f);
    uint32_t rope = build_rope_freqs(p, &c->rope, false, NULL);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        build_norm(p, l, REG_H, REG_X, TENSOR("model.layers.%u.input_layernorm.weight", NULL),
                   false);
        build_qkv(p, l, REG_H, &usual_qkv);
        build_rope(p, l, rope);
        build_attention_of(p, l, REG_Q, TENSOR("model.layers.%u.self_attn.sinks", NULL));
        build_attention_output(p, l, REG_H, &usual_output);
        build_residual(p, l);
        build_norm(p, l, REG_H, REG_X,
                   TENSOR("model.layers.%u.post_attention_layernorm.weight", NULL), false);
        build_moe(p, l, &names);
        build_residual_of(p, l, REG_E);
    }
    build_head(p, TENSOR("model.norm.weight", NULL), false, TENSOR("lm_head.weight", NULL));
}
