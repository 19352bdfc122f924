#pragma once
#include "kernels/op_params.h"

/* MLA's attention with the projections of keys and values absorbed, as one operator instead of
 * five in a program: projects Q into the latents' space (`keys`, [kv_rank][nope] for each head;
 * `rope` copies the slice of Q that stays unchanged), writes the keys and values of all rows to
 * the cache, computes attention over the latents, and projects the results out of their space
 * (`values`, [v][kv_rank]). */
struct latent_params {
    struct heads_params keys;
    struct copy_heads_params rope;
    struct kv_write_params write;
    struct attention_params attention;
    struct heads_params values;
};
