#include "worker/model/build_llama.h"
#include "worker/model/families/family.h"

#define MLP "model.layers.%u.mlp."

/* Writes gpt-oss (OpenAI 2025): a window in every second layer, a sink for each head, biases
 * everywhere, and experts whose matrices are stacked, with alternating rows of gate and up. */
void family_gpt_oss(struct program *p)
{
    static const struct moe_names names = {
        .router = {MLP "router.weight", "blk.%u.ffn_gate_inp.weight"},
        .router_bias = {MLP "router.bias", "blk.%u.ffn_gate_inp.bias"},
        .gate = {MLP "experts.gate_up_proj", "blk.%u.ffn_gate_exps.weight"},
        .up = {MLP "experts.gate_up_proj", "blk.%u.ffn_up_exps.weight"},
        .down = {MLP "experts.down_proj", "blk.%u.ffn_down_exps.weight"},
        .gate_bias = {MLP "experts.gate_up_proj_bias", "blk.%u.ffn_gate_exps.bias"},
        .up_bias = {MLP "experts.gate_up_proj_bias", "blk.%u.ffn_up_exps.bias"},
        .down_bias = {MLP "experts.down_proj_bias", "blk.%u.ffn_down_exps.bias"},
        .stacked = true,
        .transposed = true,
        .in_turns = true};
    build_like_llama(p,
                     &(struct llama_parts){
                         .qkv = &usual_qkv,
                         .sinks = {"model.layers.%u.self_attn.sinks", "blk.%u.attn_sinks.weight"},
                         .moe = &names,
                         .gguf_mlp_norm = "blk.%u.post_attention_norm.weight"});
}
