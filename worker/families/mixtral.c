#include "worker/build.h"

#define MOE "model.layers.%u.block_sparse_moe."

/* Mixtral (Jiang et al. 2024): Llama's layers with a mixture of experts for an MLP. */
void family_mixtral(struct program *p)
{
    static const struct moe_names names = {.router = {MOE "gate.weight", NULL},
                                           .gate = {MOE "experts.%u.w1.weight", NULL},
                                           .up = {MOE "experts.%u.w3.weight", NULL},
                                           .down = {MOE "experts.%u.w2.weight", NULL}};
    const struct model_config *c = p->config;
    build_embedding(p, TENSOR("model.embed_tokens.weight", NULL), 1.0f);
    uint32_t rope = build_rope_freqs(p, &c->rope, false, NULL);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        build_norm(p, l, REG_H, REG_X, TENSOR("model.layers.%u.input_layernorm.weight", NULL),
                   false);
        build_qkv(p, l, REG_H, &usual_qkv);
        build_rope(p, l, rope);
        build_attention(p, l);
        build_attention_output(p, l, REG_H, &usual_output);
        build_residual(p, l);
        build_norm(p, l, REG_H, REG_X,
                   TENSOR("model.layers.%u.post_attention_layernorm.weight", NULL), false);
        build_moe(p, l, &names);
        build_residual_of(p, l, REG_E);
    }
    build_head(p, TENSOR("model.norm.weight", NULL), false, TENSOR("lm_head.weight", NULL));
}
