#pragma once
/* Declares the functions that add a mixture of experts to a program. */
#include "worker/model/build.h"

/* `moe_names` names the tensors for build_moe. It adds E = the sum of the experts that the
 * router selects for H, with the shared expert. H is overwritten. */
struct moe_names {
    struct tensor_name router, router_bias, choice_bias;
    /* names for each expert, or for all experts when `stacked` */
    struct tensor_name gate, up, down;
    struct tensor_name gate_bias, up_bias, down_bias;
    /* `stacked`: one tensor holds all experts (always in a GGUF). `transposed`: the tensor's
     * matrices are [inputs][outputs]. `in_turns`: rows of gate and up alternate. The last two
     * are for gpt_oss and do not apply to a GGUF. */
    bool stacked, transposed, in_turns;
    struct mlp_names shared;
    struct tensor_name shared_gate;
};
void build_moe(struct program *p, uint32_t layer, const struct moe_names *names);
