#include "worker/build.h"

/* Qwen 3 (Qwen Team 2025): Llama's layers with a norm for each head of Q and K. */
void family_qwen3(struct program *p)
{
    const struct model_config *c = p->config;
    build_embedding(p, TENSOR("model.embed_tokens.weight", "token_embd.weight"), 1.0f);
    uint32_t rope = build_rope_freqs(p, &c->rope, false, NULL);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        build_norm(p, l, REG_H, REG_X,
                   TENSOR("model.layers.%u.input_layernorm.weight", "blk.%u.attn_norm.weight"),
                   false);
        build_qkv(p, l, REG_H, &usual_qkv);
        build_head_norm(
            p, l, REG_Q,
            TENSOR("model.layers.%u.self_attn.q_norm.weight", "blk.%u.attn_q_norm.weight"), false);
        build_head_norm(
            p, l, REG_K,
            TENSOR("model.layers.%u.self_attn.k_norm.weight", "blk.%u.attn_k_norm.weight"), false);
        build_rope(p, l, rope);
        build_attention(p, l);
        build_attention_output(p, l, REG_H, &usual_output);
        build_residual(p, l);
        build_norm(
            p, l, REG_H, REG_X,
            TENSOR("model.layers.%u.post_attention_layernorm.weight", "blk.%u.ffn_norm.weight"),
            false);
        build_gated_mlp(p, l, REG_H, REG_H, &usual_mlp);
        build_residual(p, l);
    }
    build_head(p, TENSOR("model.norm.weight", "output_norm.weight"), false,
               TENSOR("lm_head.weight", "output.weight"));
}
