#pragma once
/* The table of one kind of device that runs a model. device/cpu.c and device/cuda.c fill it; all
 * that CPUs and GPUs have in common is in device/model.c and step/. */
#include "common/options/worker.h"
#include "kernels/cuda/backend/sampler.h"
#include "proto/messages.h"
#include "worker/engine/state.h"
#include "worker/kv/view.h"

/* A GPU that has been opened, for executor_cuda_open, which takes it over whatever comes of it. */
struct device;
struct executor_found {
    struct device *device;
    uint32_t ordinal;   /* of this machine's */
    double utilization; /* as it was asked for */
    uint64_t open_ns;   /* that opening it took */
};

struct executor_model;
struct ranks_ops;
struct executor_device {
    enum device_kind kind;
    const char *activations; /* their numbers, as the configuration hash has them */
    uint32_t draft_max_seqs; /* draft tokens pay in steps of at most so many sequences */
    /* Adds to executor_model_setup, or refuses options. NULL: nothing to add. */
    enum status (*setup)(const struct worker_options *o, const struct executor_found *found,
                         struct engine_setup *s, struct error *err);
    uint64_t (*memory_bytes)(const struct executor_model *x); /* of the device */
    void (*name)(const struct executor_model *x, char *out, size_t size);
    void (*place)(const struct executor_model *x, char *out, size_t size); /* info.pci; or NULL */
    /* Answers as sync would, without waiting: STATUS_AGAIN while at work. NULL: calls wait. */
    enum status (*query)(struct executor_model *x, struct error *err);
    /* Said at the end of a start that took so long; or NULL. */
    void (*say_loaded)(const struct executor_model *x, uint64_t elapsed_ns);
    /* Ranks that talk by other means than struct comm. NULL: by that. */
    const struct ranks_ops *ranks;
    /* A device that samples, of a model that is measured and not loaded. NULL: the host samples. */
    enum status (*open_sampler)(struct executor_model *x, struct gpu_sampler **out,
                                struct error *err);
    /* For memory that the host does not reach; or NULL. */
    enum status (*open_copies)(struct executor_model *x, struct kv_copies **out, struct error *err);
};
