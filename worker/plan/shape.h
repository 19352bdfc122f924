#pragma once
/* A model that is planned for GPUs: its figures, and what one of tp ranks takes of it. Counted as a
 * worker counts where the model is there, by arithmetic where only its shape is said; both give the
 * same structs. */
#include "worker/plan/plan.h"

/* What the driver and CUDA have of a GPU before the first byte of ours, which counts against our
 * part of it (an A10G of 22.49 GiB shows programs some 22.1, and a context takes a third of one),
 * and what a worker leaves to what grows (worker/executor/device/cuda.c). Never measured by us. */
#define SHAPE_CONTEXT_BYTES  (768ull << 20)
#define SHAPE_RESERVED_BYTES (512ull << 20)

struct shape_kv {
    uint32_t window_tokens; /* 0: these layers see everything */
    uint64_t bytes_per_token;
};

/* The rank that takes most. */
struct shape_rank {
    uint32_t tp, n_kv_groups;
    uint64_t weights_bytes, activation_bytes, overhead_bytes;
    struct shape_kv kv[PROGRAM_MAX_KV_GROUPS];
};

struct shape {
    const char *model; /* as it was asked for; NULL: a bare shape */
    char family[32];
    const char *dtype, *kv_dtype; /* static */
    enum dtype kv;
    const struct plan_options *options; /* borrowed */
    struct plan_counts counts;
    uint64_t weights_bytes;  /* of one whole copy */
    uint32_t max_model_len;  /* that is planned for; 0: none, of a bare shape */
    uint32_t most_model_len; /* that the model was made for */
    bool is_counted, activations_estimated;
};

/* model NULL: by the options alone. STATUS_INVALID names the option that makes no sense. */
MUST_USE enum status shape_open(const char *model, const struct plan_options *o, struct shape *out,
                                struct error *err);
/* Without --max-model-len: weights, and the KV cache of a token. */
MUST_USE enum status shape_print(const struct shape *s, struct strbuf *out, struct error *err);
/* On GPUs with so much memory. STATUS_UNSUPPORTED: it cannot be cut so. */
MUST_USE enum status shape_rank_of(const struct shape *s, uint32_t tp, uint64_t gpu_memory_bytes,
                                   struct shape_rank *out, struct error *err);
/* Is any of a shape's options given? --dtype alone is none: a model's files say what theirs is. */
bool shape_is_said(const struct plan_options *o);
