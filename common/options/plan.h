#pragma once
/* The options of `cox plan MODEL`: for cox-worker, which computes it, and for cox's help. What it
 * shares with a worker has the worker's names and means the same. */
#include "common/options/worker.h"

enum plan_device { PLAN_DEVICE_CPU, PLAN_DEVICE_CUDA };
struct plan_options {
    struct worker_options worker; /* those that say how large it is going to be */
    int64_t memory_bytes;         /* 0: what is free here, shared out */
    int device;                   /* enum plan_device */
    double gpu_memory_utilization;
    bool json;
};

extern const struct option_spec plan_specs[];
extern const size_t plan_n_specs;
