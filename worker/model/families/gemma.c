#include <math.h>

#include "worker/model/build.h"
#include "worker/model/families/family.h"

/* Writes the layers of Gemma: norms before and after each part, layers with a window, embeddings
 * scaled by sqrt(hidden). Checkpoints store the weights of norms minus one; GGUFs store the
 * weights. */
static void gemma(struct program *p, bool head_norms)
{
    const struct model_config *c = p->config;
    bool plus_one = c->format != MODEL_GGUF;
    build_embedding(p, TENSOR("model.embed_tokens.weight", "token_embd.weight"),
                    sqrtf((float)c->hidden));
    uint32_t rope = build_rope_freqs(p, &c->rope, false, NULL);
    uint32_t rope_local = head_norms ? build_rope_freqs(p, &c->rope_local, false, NULL) : rope;
    for (uint32_t l = p->layer_begin; l < p->layer_end; l++) {
        build_norm(p, l, REG_H, REG_X,
                   TENSOR("model.layers.%u.input_layernorm.weight", "blk.%u.attn_norm.weight"),
                   plus_one);
        build_qkv(p, l, REG_H, &usual_qkv);
        if (head_norms)
            build_head_norms(p, l, plus_one);
        build_rope(p, l, c->layer_is_window[l] ? rope_local : rope);
        build_attention(p, l);
        build_attention_output(p, l, REG_H, &usual_output);
        build_norm(p, l, REG_H, REG_H,
                   TENSOR("model.layers.%u.post_attention_layernorm.weight",
                          "blk.%u.post_attention_norm.weight"),
                   plus_one);
        build_residual(p, l);
        build_norm(
            p, l, REG_H, REG_X,
            TENSOR("model.layers.%u.pre_feedforward_layernorm.weight", "blk.%u.ffn_norm.weight"),
            plus_one);
        build_gated_mlp(p, l, REG_H, REG_H, &usual_mlp);
        build_norm(p, l, REG_H, REG_H,
                   TENSOR("model.layers.%u.post_feedforward_layernorm.weight",
                          "blk.%u.post_ffw_norm.weight"),
                   plus_one);
        build_residual(p, l);
    }
    build_head(p, TENSOR("model.norm.weight", "output_norm.weight"), plus_one,
               TENSOR("lm_head.weight", "output.weight"));
}

/* Writes Gemma 2 (Gemma Team 2024), which has a window in every second layer and capped scores
 * and logits. */
void family_gemma2(struct program *p)
{
    gemma(p, false);
}

/* Writes Gemma 3, text (Gemma Team 2025), which has one norm per head of Q and K. Layers with a
 * window have their own rotary base. */
void family_gemma3(struct program *p)
{
    gemma(p, true);
}
