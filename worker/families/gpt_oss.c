#include "worker/build.h"

#define MLP "model.layers.%u.mlp."

/* gpt-oss (OpenAI 2025): windows in every second layer, a sink for each head, biases everywhere,
 * and experts whose matrices are stacked, with gate and up in turns. */
void family_gpt_oss(struct program *p)
{
    static const struct moe_names names = {.router = {MLP "router.weight", NULL},
                                           .router_bias = {MLP "router.bias", NULL},
                                           .gate = {MLP "experts.gate_up_proj", NULL},
                                           .up = {MLP "experts.gate_up_proj", NULL},
                                           .down = {MLP "experts.down_proj", NULL},
                                           .gate_bias = {MLP "experts.gate_up_proj_bias", NULL},
                                           .up_bias = {MLP "experts.gate_up_proj_bias", NULL},
                                           .down_bias = {MLP "experts.down_proj_bias", NULL},
                                           .stacked = true,
                                           .transposed = true,
                                           .in_turns = true};
    build_like_llama(p, &(struct llama_parts){.qkv = &usual_qkv,
                                              .sinks = {"model.layers.%u.self_attn.sinks", NULL},
                                              .moe = &names});
}
