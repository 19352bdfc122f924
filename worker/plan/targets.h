#pragma once
/* A model over the GPUs and machines that were asked for: each number of ranks that they allow,
 * whether it fits there and how fast it could be. */
#include "worker/plan/fit.h"
#include "worker/plan/roofline.h"

/* Of a target: 1, 2, 4, ... 64, and all of its GPUs where they are no power of two. */
#define TARGETS_MAX_DEGREES 8u

struct target_degree {
    uint32_t tp;
    bool is_possible;
    struct error reason; /* why not */
    struct shape_rank rank;
    struct fit fit;
    bool has_rates; /* of a GPU that is known by its memory alone there are none */
    struct roofline decode, decode_most, prefill; /* of batch, of max_batch (0: none) sequences */
};

struct target {
    struct gpu_target at;
    uint64_t memory_bytes; /* of each GPU */
    bool is_supported;     /* by the kernels that we have */
    struct target_degree degrees[TARGETS_MAX_DEGREES];
    uint32_t n_degrees, i_best; /* the fewest that it fits on, else the most that are possible */
    bool fits;                  /* with i_best */
};

struct targets {
    const struct shape *shape; /* borrowed */
    struct shape_rank whole;   /* on one GPU that is large enough */
    uint64_t batch, kv_bytes;  /* of the batch in the whole */
    uint32_t context;
    struct target *list;
    size_t n, i_best;        /* fits on the fewest GPUs, the first of these */
    bool fits, is_supported; /* there */
    bool is_everything;      /* no target was named: these are all GPUs that we know */
};

/* STATUS_NOT_FOUND, STATUS_INVALID: of a name. That it fits nowhere is no error. targets_fini is
 * due either way. */
MUST_USE enum status targets_make(const struct shape *s, struct targets *out, struct error *err);
void targets_fini(struct targets *t);
/* GPUs of the target that its best number of ranks leaves over. */
uint32_t targets_idle(const struct target *t);
void targets_print(const struct targets *t, struct strbuf *out);
void targets_print_json(const struct targets *t, struct strbuf *out);
