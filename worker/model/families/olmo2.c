#include "worker/model/build.h"
#include "worker/model/families/family.h"

/* Writes OLMo 2 (OLMo Team 2025), which has norms after each part and none before; Q and K are
 * each normalised as one vector. */
void family_olmo2(struct program *p)
{
    const struct model_config *c = p->config;
    build_embedding(p, TENSOR("model.embed_tokens.weight", "token_embd.weight"), 1.0f);
    uint32_t rope = build_rope_freqs(p, &c->rope, false, NULL);
    for (uint32_t l = p->layer_begin; l < p->layer_end; l++) {
        build_qkv(p, l, REG_X, &usual_qkv);
        build_whole_norm(
            p, l, REG_Q,
            TENSOR("model.layers.%u.self_attn.q_norm.weight", "blk.%u.attn_q_norm.weight"), false);
        build_whole_norm(
            p, l, REG_K,
            TENSOR("model.layers.%u.self_attn.k_norm.weight", "blk.%u.attn_k_norm.weight"), false);
        build_rope(p, l, rope);
        build_attention(p, l);
        build_attention_output(p, l, REG_H, &usual_output);
        build_norm(p, l, REG_H, REG_H,
                   TENSOR("model.layers.%u.post_attention_layernorm.weight",
                          "blk.%u.post_attention_norm.weight"),
                   false);
        build_residual(p, l);
        build_gated_mlp(p, l, REG_H, REG_X, &usual_mlp);
        build_norm(p, l, REG_H, REG_H,
                   TENSOR("model.layers.%u.post_feedforward_layernorm.weight",
                          "blk.%u.post_ffw_norm.weight"),
                   false);
        build_residual(p, l);
    }
    build_head(p, TENSOR("model.norm.weight", "output_norm.weight"), false,
               TENSOR("lm_head.weight", "output.weight"));
}
