#include <string.h>

#include "worker/build.h"

#define MLP "model.layers.%u.mlp."

/* Qwen 2 MoE (a shared expert behind a gate of its own, biases) and Qwen 3 MoE (norms of Q and K
 * instead): mixtures in some layers or all. */
void family_qwen_moe(struct program *p)
{
    static const struct moe_names names = {
        .router = {MLP "gate.weight", NULL},
        .gate = {MLP "experts.%u.gate_proj.weight", NULL},
        .up = {MLP "experts.%u.up_proj.weight", NULL},
        .down = {MLP "experts.%u.down_proj.weight", NULL},
        .shared = {.gate = {MLP "shared_expert.gate_proj.weight", NULL},
                   .up = {MLP "shared_expert.up_proj.weight", NULL},
                   .down = {MLP "shared_expert.down_proj.weight", NULL}},
        .shared_gate = {MLP "shared_expert_gate.weight", NULL}};
    const struct model_config *c = p->config;
    bool head_norms = strcmp(c->family, "qwen3_moe") == 0;
    build_embedding(p, TENSOR("model.embed_tokens.weight", NULL), 1.0f);
    uint32_t rope = build_rope_freqs(p, &c->rope, false, NULL);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        build_norm(p, l, REG_H, REG_X, TENSOR("model.layers.%u.input_layernorm.weight", NULL),
                   false);
        build_qkv(p, l, REG_H, &usual_qkv);
        if (head_norms) {
            build_head_norm(p, l, REG_Q, TENSOR("model.layers.%u.self_attn.q_norm.weight", NULL),
                            false);
            build_head_norm(p, l, REG_K, TENSOR("model.layers.%u.self_attn.k_norm.weight", NULL),
                            false);
        }
        build_rope(p, l, rope);
        build_attention(p, l);
        build_attention_output(p, l, REG_H, &usual_output);
        build_residual(p, l);
        build_norm(p, l, REG_H, REG_X,
                   TENSOR("model.layers.%u.post_attention_layernorm.weight", NULL), false);
        if (c->moe.layer_has[l])
            build_moe(p, l, &names);
        else
            build_gated_mlp(p, l, REG_H, REG_H, &usual_mlp);
        build_residual_of(p, l, c->moe.layer_has[l] ? REG_E : REG_H);
    }
    build_head(p, TENSOR("model.norm.weight", NULL), false, TENSOR("lm_head.weight", NULL));
}
