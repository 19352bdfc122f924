#pragma once
#include "kernels/op_params.h"

/* Attention of MLA with the projections of keys and values absorbed, as a program has it operator
 * by operator: Q into the latent's space (keys, of [kv_rank][nope] for each head; rope: the slice
 * of Q that stands as it is), keys and values of all rows into the cache, attention over the
 * latents, results out of their space (values, of [v][kv_rank]). */
struct latent_params {
    struct heads_params keys;
    struct copy_heads_params rope;
    struct kv_write_params write;
    struct attention_params attention;
    struct heads_params values;
};
