#include "worker/build.h"

#define MOE "model.layers.%u.block_sparse_moe."

/* Mixtral (Jiang et al. 2024): Llama's layers with a mixture of experts for an MLP. */
void family_mixtral(struct program *p)
{
    static const struct moe_names names = {.router = {MOE "gate.weight", NULL},
                                           .gate = {MOE "experts.%u.w1.weight", NULL},
                                           .up = {MOE "experts.%u.w3.weight", NULL},
                                           .down = {MOE "experts.%u.w2.weight", NULL}};
    build_like_llama(p, &(struct llama_parts){.qkv = &usual_qkv, .moe = &names});
}
