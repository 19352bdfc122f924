#pragma once
/* Declares the layers of Llama, for families that differ only in parts. */
#include "worker/model/build_moe.h"

/* `llama_parts` describes a model whose layers have Llama's order: norm, attention, norm, MLP. */
struct llama_parts {
    const struct qkv_names *qkv; /* names of Q, K and V; NULL = latent attention (MLA) */
    bool head_norms;             /* Q and K are normalised per head */
    struct tensor_name sinks;
    const struct mlp_names *mlp; /* names for layers without experts */
    const struct moe_names *moe; /* names for layers with experts; NULL = the model has none */
    bool interleaved;            /* the two dimensions of a rotated pair are adjacent */
    /* tensor that divides the rotary frequencies, if the file has it; may be NULL */
    const char *gguf_divisors;
    const char *gguf_mlp_norm; /* name of the norm before the MLP; NULL = the usual one */
};
void build_like_llama(struct program *p, const struct llama_parts *x);
