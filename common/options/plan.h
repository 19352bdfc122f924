#pragma once
/* The options of `cox plan MODEL`: for cox-worker, which computes it, and for cox's help. What it
 * shares with a worker has the worker's names and means the same. */
#include "common/options/worker.h"

enum plan_device { PLAN_DEVICE_CPU, PLAN_DEVICE_CUDA };

/* In the order of PLAN_DTYPES. */
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

/* The shape of a model that has no files, or in the place of what its files say. 0, NULL: not said.
 */
struct plan_shape_options {
    const char *params, *active_params; /* "13e9", "13B" */
    int dtype;                          /* enum plan_dtype */
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab_size;
};

struct plan_options {
    struct worker_options worker; /* those that say how large it is going to be; tp 0: not said */
    int64_t memory_bytes;         /* 0: what is free here, shared out */
    int device;                   /* enum plan_device */
    double gpu_memory_utilization;
    struct plan_shape_options shape;
    struct option_list gpus, instances;
    int64_t batch, context;
    int64_t activation_bytes, overhead_bytes; /* of each GPU; -1: counted */
    const char *shown_as;
    bool json;
};

extern const struct option_spec plan_specs[];
extern const size_t plan_n_specs;
