#pragma once
/* How fast a GPU could run a model, by what bounds it: a roofline (Williams, Waterman, Patterson
 * 2009) over a transformer's step (Pope et al. 2022, "Efficiently Scaling Transformer Inference").
 * Of a step with n tokens, of b sequences that have c tokens each, each of tp ranks
 *   reads     its weights (of e experts those that n tokens meet: 1 - (1 - k / e)^n of them) and
 *             the KV cache of b sequences of c tokens                        / bytes a second
 *   computes  2 operations for each weight that a token goes through, and
 *             4 c (heads x head_dim) a layer for its attention, n times      / operations a second
 *   exchanges 2 all-reduces a layer of n x hidden numbers of 2 bytes, of which a ring sends
 *             2 (tp - 1) / tp, and ROOFLINE_HOP_S for each that it begins    / bytes a second
 * and takes the longer one of the first two, then the third. What is not counted (launches, norms,
 * the head's work, kernels that do not reach the peaks) makes real ones slower: an upper bound. */
#include "worker/plan/gpus.h"
#include "worker/plan/shape.h"

/* Of an all-reduce, before its first byte: the order of NCCL's latency within a host. */
#define ROOFLINE_HOP_S 10e-6

enum roofline_bound { ROOFLINE_MEMORY, ROOFLINE_COMPUTE, ROOFLINE_LINKS, ROOFLINE_BOUND_COUNT };
extern const char *const roofline_bound_names[ROOFLINE_BOUND_COUNT];

struct roofline {
    double memory_s, compute_s, links_s, step_s;
    enum roofline_bound bound; /* the largest of the three */
};

/* What a step is run on, and of what. */
struct roofline_on {
    const struct gpu_model *gpu;
    const struct shape *shape;
    const struct shape_rank *rank;
};

/* A step in which each of batch sequences, of context tokens, has one more. */
struct roofline roofline_decode(const struct roofline_on *on, uint64_t batch, uint32_t context);
/* A prompt of n tokens by itself, in one step. */
struct roofline roofline_prefill(const struct roofline_on *on, uint32_t n_tokens);
