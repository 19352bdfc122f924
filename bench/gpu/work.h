#pragma once
/* Counts the work of a model's step, in bytes and operations, from its program's shapes alone
 * (one rank). The figures of bench/gpu/model.c are fractions of this work. Needs no device.
 *
 * Bytes of a decode step = weights + KV cache.
 *   weights: every matrix once, in its published bytes (work_weight_bytes), not in those of our
 *     layout, except that
 *     - the embedding counts one row for each row of the batch; a head that is tied to it is read
 *       whole, once,
 *     - a mixture's layer counts the experts that its rows chose, each once; the caller counts
 *       them, because they depend on the numbers.
 *     Norms, biases and angles are below 0.1 % and do not count. Neither do activations, logits
 *     and the KV cache that is written.
 *   KV cache: for each layer min(context, window) tokens of each sequence, with the scales of
 *     coarse dtypes. A latent (MLA) is one vector for all heads.
 *
 * Operations of a prompt of n tokens (2 for a product and its sum):
 *   2 x outputs x inputs of every matrix for each token. A mixture counts n_chosen experts for
 *     each token, and shared experts and routers too. The embedding counts nothing; the head counts
 *     once, for the one row that samples.
 *   attention: 2 x query heads x (key + value dimensions) for each pair of positions that see each
 *     other: position i sees min(i + 1, window). For MLA this is the model's own form (keys of nope
 *     + rope, values of v dimensions). The absorbed form computes more (rank + rope, rank). The
 *     figure relates to the operations that the model needs, not to those that are done. */
#include "worker/model/program.h"

struct work {
    double dense_bytes; /* weights that every step reads */
    /* bytes of one row of the embedding, read for each row of the batch */
    double embedding_row_bytes;
    double expert_bytes; /* bytes of one expert of one layer, all three matrices */
    uint32_t n_mixtures; /* number of layers with a mixture */
    double token_ops;    /* operations of the matrix products of one token, without the head */
    double head_ops;     /* operations of the head, for each row that samples */
    double pair_ops;     /* operations of attention, for a pair of positions in one layer */
    uint32_t n_kv_groups;
    struct work_layers {
        uint32_t n_layers, window; /* window: 0 = the layers see all positions */
        double token_bytes;        /* KV bytes of one position in all of these layers */
    } layers[PROGRAM_MAX_KV_GROUPS];
};

/* Returns the bytes of an n x k matrix as published. BF16, F16 and F32 count two bytes a weight,
 * because all are kept as bfloat16. Codes of 2, 3, 4 or 8 bits count their bits, and for each
 * group (0 = a row) a scale of two bytes and a zero of the code's bits. FP8 counts one byte.
 * GGML's formats and MXFP4 count their blocks. */
double work_weight_bytes(enum dtype dtype, double n, double k, uint32_t group);

/* Counts a program with dummy weights on one rank. Errors come from source_find. */
MUST_USE enum status work_of(const struct program *p, enum dtype kv_dtype, struct work *out,
                             struct error *err);

/* Returns the bytes of weights that a step of n_rows reads. n_experts: number of experts that
 * the step reads, over all layers. */
double work_step_weights(const struct work *w, double n_rows, double n_experts);
/* Returns the bytes of KV cache that one row reads when it sees `context` positions, its own
 * included. */
double work_kv_bytes(const struct work *w, double context);
/* Returns the operations of a prompt of n tokens, of which one row samples. */
double work_prompt_ops(const struct work *w, uint32_t n);
/* Returns the expected number of different experts in one layer when n_rows rows each choose
 * n_chosen of n at random. */
double work_random_experts(uint32_t n, uint32_t n_chosen, uint32_t n_rows);
