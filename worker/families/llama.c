#include <string.h>

#include "worker/build.h"

/* Llama 1 to 3.3 (Touvron et al. 2023) and what is built like it: Vicuna, OpenLLaMA, Mistral with
 * its windows (Jiang et al. 2023), Qwen 2 with its biases (Yang et al. 2024). Norms before, SwiGLU,
 * rotary embedding. A GGUF of the first three has the rows of Q and K permuted so that rotated
 * pairs are neighbours, and Llama 3's frequency scaling as a tensor of divisors. */
void family_llama(struct program *p)
{
    const struct model_config *c = p->config;
    build_embedding(p, TENSOR("model.embed_tokens.weight", "token_embd.weight"), 1.0f);
    uint32_t rope =
        build_rope_freqs(p, &c->rope, c->format == MODEL_GGUF && strcmp(c->family, "qwen2") != 0,
                         "rope_freqs.weight");
    for (uint32_t l = 0; l < c->n_layers; l++) {
        build_norm(p, l, REG_H, REG_X,
                   TENSOR("model.layers.%u.input_layernorm.weight", "blk.%u.attn_norm.weight"),
                   false);
        build_qkv(p, l, REG_H, &usual_qkv);
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
