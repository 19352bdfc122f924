#include <string.h>

#include "worker/model/build_llama.h"
#include "worker/model/families/family.h"

#define MLP "model.layers.%u.mlp."

/* Writes Qwen 2 MoE (a shared expert with a gate of its own, biases) and Qwen 3 MoE (norms of Q
 * and K instead). Mixtures are in some layers or in all. */
void family_qwen_moe(struct program *p)
{
    static const struct moe_names names = {
        .router = {MLP "gate.weight", "blk.%u.ffn_gate_inp.weight"},
        .gate = {MLP "experts.%u.gate_proj.weight", "blk.%u.ffn_gate_exps.weight"},
        .up = {MLP "experts.%u.up_proj.weight", "blk.%u.ffn_up_exps.weight"},
        .down = {MLP "experts.%u.down_proj.weight", "blk.%u.ffn_down_exps.weight"},
        .shared = {.gate = {MLP "shared_expert.gate_proj.weight", "blk.%u.ffn_gate_shexp.weight"},
                   .up = {MLP "shared_expert.up_proj.weight", "blk.%u.ffn_up_shexp.weight"},
                   .down = {MLP "shared_expert.down_proj.weight", "blk.%u.ffn_down_shexp.weight"}},
        .shared_gate = {MLP "shared_expert_gate.weight", "blk.%u.ffn_gate_inp_shexp.weight"}};
    build_like_llama(
        p, &(struct llama_parts){.qkv = &usual_qkv,
                                 .head_norms = strcmp(p->config->family, "qwen3_moe") == 0,
                                 .mlp = &usual_mlp,
                                 .moe = &names});
}
