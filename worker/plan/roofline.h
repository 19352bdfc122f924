#pragma once
/* Computes an upper bound of a model's speed on a GPU: a roofline (Williams, Waterman, Patterson
 * 2009) over a transformer's step (Pope et al. 2022, "Efficiently Scaling Transformer
 * Inference"). In a step with n tokens of b sequences that have c tokens each, each of tp ranks
 *   reads     its weights (with e experts, the fraction 1 - (1 - k / e)^n of them)
 *             and the KV cache of b sequences of c tokens             / bytes per second
 *   computes  2 operations for each weight that a token uses, and per layer
 *             4 c (heads x head_dim) for its attention, n times       / operations per second
 *   exchanges 2 all-reduces per layer of n x hidden numbers of 2 bytes, of which a ring
 *             sends 2 (tp - 1) / tp; ROOFLINE_HOP_S for each          / bytes per second
 *
 * The step takes the longer one of the first two, plus the third. Launches, norms, the head's
 * work and kernels below their peak are not counted, so real steps are slower. */
#include "worker/plan/gpus.h"
#include "worker/plan/shape.h"

/* ROOFLINE_HOP_S is the latency of an all-reduce in seconds, about that of NCCL within a host. */
#define ROOFLINE_HOP_S 10e-6

enum roofline_bound { ROOFLINE_MEMORY, ROOFLINE_COMPUTE, ROOFLINE_LINKS, ROOFLINE_BOUND_COUNT };
extern const char *const roofline_bound_names[ROOFLINE_BOUND_COUNT];

struct roofline {
    double memory_s, compute_s, links_s, step_s;
    /* the longer one of memory and compute, or the links when they take even longer */
    enum roofline_bound bound;
};

/* `roofline_on` describes the GPU and the rank for which a step is computed. */
struct roofline_on {
    const struct gpu_model *gpu;
    const struct shape *shape;
    const struct shape_rank *rank;
};

/* Returns the time of a step that adds one token to each of `batch` sequences of `context`
 * tokens. */
struct roofline roofline_decode(const struct roofline_on *on, uint64_t batch, uint32_t context);
/* Returns the time of the prefill of one prompt of n tokens in one step. */
struct roofline roofline_prefill(const struct roofline_on *on, uint32_t n_tokens);
