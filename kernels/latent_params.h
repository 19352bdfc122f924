#pragma once
#include "kernels/op_params.h"

/* Declares MLA's attention with absorbed projections of keys and values, which is one operator
 * instead of five in a program. The operator projects Q into the latents' space (`keys`,
 * [kv_rank][nope] for each head); `rope` copies the slice of Q that stays unchanged. It writes
 * the keys and values of all rows to the cache and computes attention over the latents. Last, it
 * projects the results out of the latents' space (`values`, [v][kv_rank]). */
struct latent_params {
    struct heads_params keys;
    struct copy_heads_params rope;
    struct kv_write_params write;
    struct attention_params attention;
    struct heads_params values;
};
