#include "worker/build.h"

#define MLP "model.layers.%u.mlp."

/* DeepSeek V2 and V3 (DeepSeek-AI 2024): latent attention, a dense MLP in the first layers, then
 * mixtures with a shared expert. They differ in how experts are chosen, which the configuration
 * says. */
void family_deepseek(struct program *p)
{
    static const struct moe_names names = {
        .router = {MLP "gate.weight", NULL},
        .choice_bias = {MLP "gate.e_score_correction_bias", NULL},
        .gate = {MLP "experts.%u.gate_proj.weight", NULL},
        .up = {MLP "experts.%u.up_proj.weight", NULL},
        .down = {MLP "experts.%u.down_proj.weight", NULL},
        .shared = {.gate = {MLP "shared_experts.gate_proj.weight", NULL},
                   .up = {MLP "shared_experts.up_proj.weight", NULL},
                   .down = {MLP "shared_experts.down_proj.weight", NULL}}};
    const struct model_config *c = p->config;
    build_mla_widths(p);
    build_embedding(p, TENSOR("model.embed_tokens.weight", NULL), 1.0f);
    uint32_t rope = build_rope_freqs(p, &c->rope, true, NULL);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        build_norm(p, l, REG_H, REG_X, TENSOR("model.layers.%u.input_layernorm.weight", NULL),
                   false);
        build_mla(p, l, rope);
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
