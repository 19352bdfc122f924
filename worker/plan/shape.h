#pragma once
/* Describes a model that is planned for GPUs: its figures, and the needs of one of tp ranks.
 * With a model, the figures are counted as a worker counts them. For a bare shape they are
 * computed. The same structs are filled in both cases. */
#include "worker/plan/plan.h"

/* SHAPE_CONTEXT_BYTES is the GPU memory that the driver and CUDA take before the worker's first
 * byte, which counts against the worker's fraction. It is an estimate, not a measurement. (An
 * A10G of 22.49 GiB shows about 22.1 GiB to programs, and a context takes a third of a GiB.)
 * SHAPE_RESERVED_BYTES is the memory that a worker leaves for growth
 * (worker/executor/device/cuda.c). */
#define SHAPE_CONTEXT_BYTES  (768ull << 20)
#define SHAPE_RESERVED_BYTES (512ull << 20)

struct shape_kv {
    uint32_t window_tokens; /* tokens of the window; 0 = full attention */
    uint64_t bytes_per_token;
};

/* `shape_rank` holds the needs of the rank with the largest needs. */
struct shape_rank {
    uint32_t tp, n_kv_groups;
    uint64_t weights_bytes, activation_bytes, overhead_bytes;
    struct shape_kv kv[PROGRAM_MAX_KV_GROUPS];
};

struct shape {
    const char *model; /* name of the model as the user wrote it; NULL = a bare shape */
    char family[32];
    const char *dtype, *kv_dtype; /* types of weights and KV cache; static strings */
    enum dtype kv;
    const struct plan_options *options; /* options of the plan; borrowed */
    struct plan_counts counts;
    uint64_t weights_bytes;  /* bytes of one copy of the whole model */
    uint32_t max_model_len;  /* planned length; 0 = none (only for a bare shape) */
    uint32_t most_model_len; /* length that the model was made for */
    bool is_counted, activations_estimated;
};

/* Reads the figures of a model, or with `model` NULL the figures in the options. The text of
 * STATUS_INVALID names the wrong option. */
MUST_USE enum status shape_open(const char *model, const struct plan_options *o, struct shape *out,
                                struct error *err);
/* Prints weights and the KV cache of a token, for a shape without --max-model-len. */
MUST_USE enum status shape_print(const struct shape *s, struct strbuf *out, struct error *err);
/* Computes the needs of a rank on GPUs with the given memory. STATUS_UNSUPPORTED: the model
 * cannot be cut into tp ranks. */
MUST_USE enum status shape_rank_of(const struct shape *s, uint32_t tp, uint64_t gpu_memory_bytes,
                                   struct shape_rank *out, struct error *err);
/* Returns true when an option describes a shape. --dtype alone does not count, because a model's
 * files contain their type. */
bool shape_is_said(const struct plan_options *o);
