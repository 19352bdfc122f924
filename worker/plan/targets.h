#pragma once
/* Plans a model on the requested GPUs and machines. For each possible number of ranks the plan
 * contains whether the model fits and an upper bound of its speed. */
#include "worker/plan/fit.h"
#include "worker/plan/roofline.h"

/* TARGETS_MAX_DEGREES is the most numbers of ranks per target: 1, 2, 4, ... 64, and all of its
 * GPUs when that is no power of two. */
#define TARGETS_MAX_DEGREES 8u

struct target_degree {
    uint32_t tp;
    bool is_possible;
    struct error reason; /* reason why `tp` is not possible; set only then */
    struct shape_rank rank;
    struct fit fit;
    bool has_rates; /* false for a GPU of which only the memory is known */
    /* `decode` is for `batch` sequences, `decode_most` for max_batch (0 = unset) */
    struct roofline decode, decode_most, prefill;
};

struct target {
    struct gpu_target at;
    uint64_t memory_bytes; /* memory of each GPU of the target */
    bool is_supported;     /* the build has kernels for this GPU */
    struct target_degree degrees[TARGETS_MAX_DEGREES];
    uint32_t n_degrees, i_best; /* i_best: fewest ranks that fit, else the most that are possible */
    bool fits;                  /* the model fits with the degree i_best */
};

struct targets {
    const struct shape *shape; /* planned model; borrowed */
    struct shape_rank whole;  /* one rank with the whole model on one GPU, whether or not it fits */
    uint64_t batch, kv_bytes; /* kv_bytes: KV cache of the batch over the whole model */
    uint32_t context;
    struct target *list;
    size_t n, i_best;        /* i_best: first target that fits on the fewest GPUs */
    bool fits, is_supported; /* figures of the target i_best */
    bool is_everything;      /* the user named no target, so the list has all known GPUs */
};

/* Evaluates all targets. The texts of STATUS_NOT_FOUND and STATUS_INVALID name the wrong target.
 * A model that fits nowhere is not an error. Call targets_fini in any case. */
MUST_USE enum status targets_make(const struct shape *s, struct targets *out, struct error *err);
void targets_fini(struct targets *t);
/* Returns how many GPUs of a machine its best number of ranks does not use. */
uint32_t targets_idle(const struct target *t);
void targets_print(const struct targets *t, struct strbuf *out);
void targets_print_json(const struct targets *t, struct strbuf *out);
