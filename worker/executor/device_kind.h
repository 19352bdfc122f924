#pragma once
/* Declares the table of one kind of device that runs a model. device/cpu.c and device/cuda.c
 * fill the table. Code that CPUs and GPUs share is in device/model.c and step/. */
#include "common/options/worker.h"
#include "kernels/cuda/backend/sampler.h"
#include "proto/messages.h"
#include "worker/engine/state.h"
#include "worker/kv/view.h"

/* `executor_found` is an opened GPU. executor_cuda_open takes over the device, even when the
 * call fails. */
struct device;
struct executor_found {
    struct device *device;
    uint32_t ordinal;   /* index among this machine's GPUs */
    double utilization; /* value of --gpu-memory-utilization */
    uint64_t open_ns;   /* duration of the opening */
};

struct executor_model;
struct ranks_ops;
struct executor_device {
    enum device_kind kind;
    const char *activations; /* type of activations, as in the configuration hash */
    /* most sequences in a step for which draft tokens are worth their cost */
    uint32_t draft_max_seqs;
    /* Adds values to the result of executor_model_setup, or refuses options. NULL = nothing to
     * add. */
    enum status (*setup)(const struct worker_options *o, const struct executor_found *found,
                         struct engine_setup *s, struct error *err);
    uint64_t (*memory_bytes)(const struct executor_model *x); /* total memory of the device */
    void (*name)(const struct executor_model *x, char *out, size_t size);
    /* writes the device's PCI address to info.pci; may be NULL */
    void (*place)(const struct executor_model *x, char *out, size_t size);
    /* Checks the device like its `sync` but without waiting: returns STATUS_AGAIN while the
     * device is busy. NULL = calls wait for the device anyway. */
    enum status (*query)(struct executor_model *x, struct error *err);
    /* Logs the end of a start that took elapsed_ns; may be NULL. */
    void (*say_loaded)(const struct executor_model *x, uint64_t elapsed_ns);
    /* table of the communication between ranks; NULL = ranks_cpu (`struct comm`) */
    const struct ranks_ops *ranks;
    /* Opens a sampler on the device for a model that is measured but not loaded. NULL = the host
     * samples. */
    enum status (*open_sampler)(struct executor_model *x, struct gpu_sampler **out,
                                struct error *err);
    /* Opens copies of KV blocks between host memory and device memory that the host cannot
     * access; may be NULL. */
    enum status (*open_copies)(struct executor_model *x, struct kv_copies **out, struct error *err);
};
