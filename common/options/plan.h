#pragma once
/* `plan_options` holds the options of `cox plan MODEL`. cox-worker computes the plan, and cox
 * prints the help. Options that a worker also has have the same names and meaning in this table. */
#include "common/options/worker.h"

enum plan_device { PLAN_DEVICE_CPU, PLAN_DEVICE_CUDA };

/* The values have the same order as PLAN_DTYPES. */
enum plan_dtype {
    PLAN_DTYPE_AUTO,
    PLAN_DTYPE_FLOAT16,
    PLAN_DTYPE_FP16,
    PLAN_DTYPE_HALF,
    PLAN_DTYPE_BFLOAT16,
    PLAN_DTYPE_BF16,
    PLAN_DTYPE_FLOAT32,
    PLAN_DTYPE_FP32,
    PLAN_DTYPE_FLOAT,
    PLAN_DTYPE_FP8,
    PLAN_DTYPE_INT8,
    PLAN_DTYPE_INT4,
    PLAN_DTYPE_COUNT
};
#define PLAN_DTYPES "auto|float16|fp16|half|bfloat16|bf16|float32|fp32|float|fp8|int8|int4"

/* `plan_shape_options` holds the shape of a model without files, or values that replace those of
 * its files. 0 or NULL = not given. */
struct plan_shape_options {
    const char *params, *active_params; /* numbers of parameters, such as "13e9" or "13B" */
    int dtype;                          /* value of enum plan_dtype */
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab_size;
};

struct plan_options {
    struct worker_options worker; /* options that change the memory needed; tp 0 = not given */
    /* memory to plan for, in bytes; 0 = a share of the memory that is free on this machine */
    int64_t memory_bytes;
    int device; /* value of enum plan_device */
    double gpu_memory_utilization;
    struct plan_shape_options shape;
    struct option_list gpus, instances;
    int64_t batch, context;
    int64_t activation_bytes, overhead_bytes; /* bytes for each GPU; -1 = computed */
    const char *shown_as;
    bool json;
};

extern const struct option_spec plan_specs[];
extern const size_t plan_n_specs;
