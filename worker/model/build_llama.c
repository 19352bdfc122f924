/* Writes layers with the structure of Llama's, which most families use with other parts. */
#include "worker/model/build_llama.h"

#include "worker/model/build_mla.h"

static void add_attention(struct program *p, uint32_t layer, const struct llama_parts *x,
                          uint32_t i_rope)
{
    if (!x->qkv) {
        build_mla(p, layer, i_rope);
        return;
    }
    build_qkv(p, layer, REG_H, x->qkv);
    if (x->head_norms)
        build_head_norms(p, layer, false);
    build_rope(p, layer, i_rope);
    build_attention_of(p, layer, REG_Q, x->sinks);
}

void build_like_llama(struct program *p, const struct llama_parts *x)
{
    const struct model_config *c = p->config;
    const char *mlp_norm = x->gguf_mlp_norm ? x->gguf_mlp_norm : "blk.%u.ffn_norm.weight";
    if (!x->qkv)
        build_mla_widths(p);
    build_embedding(p, TENSOR("model.embed_tokens.weight", "token_embd.weight"), 1.0f);
    uint32_t rope = build_rope_freqs(p, &c->rope, x->interleaved, x->gguf_divisors);
    for (uint32_t l = p->layer_begin; l < p->layer_end; l++) {
        bool experts = x->moe && c->moe.layer_has[l];
        build_norm(p, l, REG_H, REG_X,
                   TENSOR("model.layers.%u.input_layernorm.weight", "blk.%u.attn_norm.weight"),
                   false);
        add_attention(p, l, x, rope);
        build_attention_output(p, l, REG_H, &usual_output);
        build_residual_of(p, l, REG_H);
        build_norm(p, l, REG_H, REG_X,
                   TENSOR("model.layers.%u.post_attention_layernorm.weight", mlp_norm), false);
        if (experts)
            build_moe(p, l, x->moe);
        else
            build_gated_mlp(p, l, REG_H, REG_H, x->mlp);
        build_residual_of(p, l, experts ? REG_E : REG_H);
    }
    build_head(p, TENSOR("model.norm.weight", "output_norm.weight"), false,
               TENSOR("lm_head.weight", "output.weight"));
}
