#include "worker/model/build_llama.h"
#include "worker/model/families/family.h"

#define MLP "model.layers.%u.mlp."

/* Writes DeepSeek V2 and V3 (DeepSeek-AI 2024): latent attention, a dense MLP in the first
 * layers, then mixtures with a shared expert. V2 and V3 differ in how experts are chosen; the
 * configuration says how. */
void family_deepseek(struct program *p)
{
    static const struct moe_names names = {
        .router = {MLP "gate.weight", "blk.%u.ffn_gate_inp.weight"},
        .choice_bias = {MLP "gate.e_score_correction_bias", "blk.%u.exp_probs_b.bias"},
        .gate = {MLP "experts.%u.gate_proj.weight", "blk.%u.ffn_gate_exps.weight"},
        .up = {MLP "experts.%u.up_proj.weight", "blk.%u.ffn_up_exps.weight"},
        .down = {MLP "experts.%u.down_proj.weight", "blk.%u.ffn_down_exps.weight"},
        .shared = {
            .gate = {MLP "shared_experts.gate_proj.weight", "blk.%u.ffn_gate_shexp.weight"},
            .up = {MLP "shared_experts.up_proj.weight", "blk.%u.ffn_up_shexp.weight"},
            .down = {MLP "shared_experts.down_proj.weight", "blk.%u.ffn_down_shexp.weight"}}};
    build_like_llama(p,
                     &(struct llama_parts){.mlp = &usual_mlp, .moe = &names, .interleaved = true});
}
