#pragma once
/* A mixture of experts. */
#include "worker/model/build.h"

/* E = the router's experts over H (which is lost), the shared one among them. */
struct moe_names {
    struct tensor_name router, router_bias, choice_bias;
    struct tensor_name gate, up, down; /* of each expert; or of all, stacked: */
    struct tensor_name gate_bias, up_bias, down_bias;
    /* Stacked (in a GGUF all are) as [inputs][outputs], gate and up in turns: gpt_oss. A GGUF has
     * neither of these. */
    bool stacked, transposed, in_turns;
    struct mlp_names shared;
    struct tensor_name shared_gate;
};
void build_moe(struct program *p, uint32_t layer, const struct moe_names *names);
