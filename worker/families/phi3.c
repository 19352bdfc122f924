#include "worker/build.h"

#define QKV     TENSOR("model.layers.%u.self_attn.qkv_proj.weight", "blk.%u.attn_qkv.weight")
#define GATE_UP TENSOR("model.layers.%u.mlp.gate_up_proj.weight", "blk.%u.ffn_up.weight")

/* Phi-3 (Abdin et al. 2024): Llama's layers with projections that share a tensor, a window in every
 * layer or none, and, in the long versions, LongRoPE over a part of each head. */
void family_phi3(struct program *p)
{
    const struct model_config *c = p->config;
    struct qkv_names qkv = {.q = QKV, .k = QKV, .v = QKV, .fused = true};
    struct mlp_names mlp = {.gate = GATE_UP, .up = GATE_UP, .down = usual_mlp.down, .fused = true};
    build_embedding(p, TENSOR("model.embed_tokens.weight", "token_embd.weight"), 1.0f);
    uint32_t rope = build_rope_freqs(p, &c->rope, false, NULL);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        build_norm(p, l, REG_H, REG_X,
                   TENSOR("model.layers.%u.input_layernorm.weight", "blk.%u.attn_norm.weight"),
                   false);
        build_qkv(p, l, REG_H, &qkv);
        build_rope(p, l, rope);
        build_attention(p, l);
        build_attention_output(p, l, REG_H, &usual_output);
        build_residual(p, l);
        build_norm(
            p, l, REG_H, REG_X,
            TENSOR("model.layers.%u.post_attention_layernorm.weight", "blk.%u.ffn_norm.weight"),
            false);
        build_gated_mlp(p, l, REG_H, REG_H, &mlp);
        build_residual(p, l);
    }
    build_head(p, TENSOR("model.norm.weight", "output_norm.weight"), false,
               TENSOR("lm_head.weight", "output.weight"));
}
