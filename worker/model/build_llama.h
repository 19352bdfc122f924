#pragma once
/* Most families are Llama's layers with other parts. */
#include "worker/model/build_moe.h"

/* A whole model of Llama's layers (norm, attention, norm, MLP), from these parts. */
struct llama_parts {
    const struct qkv_names *qkv; /* NULL: latent attention */
    bool head_norms;             /* of Q and K */
    struct tensor_name sinks;
    const struct mlp_names *mlp; /* of layers without experts */
    const struct moe_names *moe; /* of those that have some; NULL: there are none */
    bool interleaved;            /* rotated pairs are neighbours */
    const char *gguf_divisors;   /* struct rope_freqs */
    const char *gguf_mlp_norm;   /* the norm before the MLP; NULL: as most call it */
};
void build_like_llama(struct program *p, const struct llama_parts *x);
