#pragma once
/* Declares the sampling of a worker's tokens on the device. Rows are sampled on the device that
 * computed their logits. The id of each slot stays there for the next step's rows. The sampled
 * results are copied to the host after the step's work. Two steps may be in flight, and the host
 * waits for a step only when it calls `wait`.
 *
 * There is one sampler for a device, and only the device's thread uses it. Its functions are in
 * a table, so that a test can replace them. */
#include "kernels/cuda/sample/abi.h"

#define GPU_SAMPLER_STEPS 2u /* largest number of steps in flight */

/* `gpu_sampler_options` holds the limits of a step. The host samples a step that exceeds them. */
struct gpu_sampler_options {
    uint32_t vocab_size, n_slots;
    uint32_t n_rows;   /* most rows of one launch; <= GPU_SAMPLE_MAX_ROWS */
    uint32_t n_places; /* most results of a step */
    /* most entries of each list, over all rows of a step */
    uint32_t n_biases, n_allowed, n_history;
};

/* `gpu_sample_lists` describes rows to be sampled. The lists are in host memory and are copied
 * before the call returns. */
struct gpu_sample_lists {
    uint32_t n_rows;
    uint32_t first_place; /* row i has place first_place + i of the step */
    struct gpu_sample_wants wants;
    const uint32_t *at_rows; /* shape [n_rows]: rows of the pass whose logits are needed */
    const struct gpu_sample_row *rows; /* `rows` has the shape [n_rows] */
    /* `biases` has n_biases entries, `allowed` n_allowed and `history` n_history. */
    const struct gpu_bias *biases;
    const uint32_t *allowed, *history;
    uint32_t n_biases, n_allowed, n_history;
};

struct gpu_sampler;
struct gpu_sampler_ops {
    /* The calls for the step i_step are: begin; send and sample any number of times; end. The
     * step's results follow later. A step may begin when the earlier step with the same number
     * has finished (wait). It may also begin when that step's results are not needed and the
     * caller has waited for the device. send, sample and end return STATUS_LIMIT when a list is
     * full. They also return an error of the device, which cannot be used any more then. */
    void (*begin)(struct gpu_sampler *w, uint32_t i_step);
    /* Sends the lists to the device. *at is the device's copy of at_rows. */
    MUST_USE enum status (*send)(struct gpu_sampler *w, uint32_t i_step,
                                 const struct gpu_sample_lists *d, const uint32_t **at,
                                 struct error *err);
    /* Samples the rows that were sent last from logits on the device, rows `stride` apart. It
     * launches only kernels and may be called repeatedly. For a step's first rows with equal
     * n_rows and wants, the arguments are the same in every step, so the call may be recorded. */
    MUST_USE enum status (*sample)(struct gpu_sampler *w, float *logits, uint32_t stride,
                                   struct error *err);
    /* Starts the copies to the host: the results of n_places, and `last` of the first n_slots
     * (for a rank that gets `last` from another rank's device). */
    MUST_USE enum status (*end)(struct gpu_sampler *w, uint32_t i_step, uint32_t n_places,
                                uint32_t n_slots, struct error *err);
    /* Returns STATUS_AGAIN while the step is not finished. */
    MUST_USE enum status (*query)(struct gpu_sampler *w, uint32_t i_step, struct error *err);
    MUST_USE enum status (*wait)(struct gpu_sampler *w, uint32_t i_step, struct error *err);
    void (*close)(struct gpu_sampler *w);
};
struct gpu_sampler {
    const struct gpu_sampler_ops *ops;
    struct gpu_sampler_options o;
    uint64_t n_bytes; /* bytes of device memory in use */
    uint32_t *last;   /* shape [n_slots], on the device: the id sampled last for each slot */
    /* shape [n_places], on the host; valid after wait */
    const struct gpu_sampled *results[GPU_SAMPLER_STEPS];
    /* shape [n_slots], on the host; valid after wait */
    const uint32_t *host_last[GPU_SAMPLER_STEPS];
};

/* Returns the bytes of device memory that a sampler needs. */
uint64_t gpu_sampler_bytes(const struct gpu_sampler_options *o);
/* Opens the sampler of a device that cuda_device_open opened. Close the sampler before the
 * device. Returns STATUS_NO_MEMORY when the device has too little memory. */
MUST_USE enum status gpu_sampler_open(struct device *d, const struct gpu_sampler_options *o,
                                      struct gpu_sampler **out, struct error *err);

/* Implements the operator `take_last` of struct ops. */
void cuda_backend_take_last(struct device *d, uint32_t *ids, const uint32_t *slots,
                            const uint32_t *last, uint32_t n_rows);
