#pragma once
/* The work of a model's step, in bytes and operations, from its program's shapes alone (one rank):
 * what the figures of bench/gpu/model.c are parts of. No device.
 *
 * Bytes of a decode step = weights + KV cache.
 *   weights: every matrix once, in the bytes that its publisher gave it (work_weight_bytes), not in
 *     those of our layout; but
 *     - of the embedding one row for each row of the batch; a head that is tied to it is read
 * whole, once,
 *     - of a mixture's layer the experts that its rows chose, each once: counted by the caller,
 *       since it depends on the numbers.
 *     Norms, biases, angles: below 0.1 %, left out. So are activations, logits, and the KV written.
 *   KV cache: for each layer min(context, its window) tokens of each sequence, with the scales of
 *     coarse dtypes. A latent (MLA) is one vector for all heads.
 *
 * Operations of a prompt of n tokens (2 for a product and its sum):
 *   2 x outputs x inputs of every matrix for each token; of a mixture n_chosen experts for each,
 *     shared experts and routers too; the embedding none; the head for the one row that samples.
 *   attention: 2 x query heads x (key + value dimensions) for each pair of positions that see each
 *     other: position i sees min(i + 1, window). For MLA this is the model's own form (keys of nope
 *     + rope, values of v dimensions), which is fewer than what the absorbed form computes (rank +
 *     rope, rank): the figure is a part of what the model needs, not of what is done. */
#include "worker/model/program.h"

struct work {
    double dense_bytes;         /* of weights that every step reads */
    double embedding_row_bytes; /* for each row */
    double expert_bytes;        /* of one expert of one layer, all three matrices */
    uint32_t n_mixtures;        /* layers that have one */
    double token_ops;           /* of the products, without the head's */
    double head_ops;            /* for each row that samples */
    double pair_ops;            /* of attention, for a pair of positions of one layer */
    uint32_t n_kv_groups;
    struct work_layers {
        uint32_t n_layers, window; /* window 0: all positions */
        double token_bytes;        /* of one position, in all of these layers */
    } layers[PROGRAM_MAX_KV_GROUPS];
};

/* Bytes of an n x k matrix as it is published: of BF16, F16 and F32, which are all kept as
 * bfloat16, two a weight; of codes of 2, 3, 4 or 8 bits so many, and for each group (0: a row) a
 * scale of two bytes and a zero of the codes' bits; of FP8 one; of GGML's formats and MXFP4 their
 * blocks. */
double work_weight_bytes(enum dtype dtype, double n, double k, uint32_t group);

/* Counts a program with dummy weights on one rank. Errors are source_find's. */
MUST_USE enum status work_of(const struct program *p, enum dtype kv_dtype, struct work *out,
                             struct error *err);

/* Bytes of weights that a step of n_rows reads; n_experts: those that are read, in all layers. */
double work_step_weights(const struct work *w, double n_rows, double n_experts);
/* Bytes of KV cache that one sequence's row reads, which sees `context` positions, its own too. */
double work_kv_bytes(const struct work *w, double context);
/* A prompt of n tokens from its beginning, one row of which samples. */
double work_prompt_ops(const struct work *w, uint32_t n);
/* Experts of one layer that so many rows choose, if each chose n_chosen of n at random. */
double work_random_experts(uint32_t n, uint32_t n_chosen, uint32_t n_rows);
