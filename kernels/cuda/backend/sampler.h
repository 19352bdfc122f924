#pragma once
/* The device's part in sampling a worker's tokens: rows are sampled where their logits are, the id
 * of each slot stays there for the next step's rows, and what was sampled comes back to the host
 * behind the step's work. Two steps may be under way; the host waits for neither unless it asks.
 *
 * One object for a device, used by the thread that uses the device. Behind a table, so that a test
 * may stand in for it. */
#include "kernels/cuda/sample/abi.h"

#define GPU_SAMPLER_STEPS 2u /* under way at most */

/* How much a step may have; what has more is sampled by the host. */
struct gpu_sampler_options {
    uint32_t vocab_size, n_slots;
    uint32_t n_rows;                         /* of one launch: <= GPU_SAMPLE_MAX_ROWS */
    uint32_t n_places;                       /* of a step */
    uint32_t n_biases, n_allowed, n_history; /* of a step's rows together */
};

/* Rows to be sampled: lists of the host, which are copied before the call returns. */
struct gpu_sample_lists {
    uint32_t n_rows;
    uint32_t first_place; /* of the step: row i has place first_place + i */
    struct gpu_sample_wants wants;
    const uint32_t *at_rows;           /* [n_rows] of the pass: for who makes their logits */
    const struct gpu_sample_row *rows; /* [n_rows] */
    const struct gpu_bias *biases;     /* [n_biases], and so on */
    const uint32_t *allowed, *history;
    uint32_t n_biases, n_allowed, n_history;
};

struct gpu_sampler;
struct gpu_sampler_ops {
    /* The calls for the step i_step: begin, send and sample any number of times, end; then its
     * results are due. A step begins when the one that had its number before is over (wait), or
     * nobody wants its results and the device was waited for. Errors of send, sample and end:
     * STATUS_LIMIT where a list has no room, and what the device says, after which it is lost. */
    void (*begin)(struct gpu_sampler *w, uint32_t i_step);
    /* The lists go to the device. *at: at_rows there. */
    MUST_USE enum status (*send)(struct gpu_sampler *w, uint32_t i_step,
                                 const struct gpu_sample_lists *d, const uint32_t **at,
                                 struct error *err);
    /* Samples what was sent last from logits of the device, rows `stride` apart. Kernels alone: as
     * often as one likes, and of a step's first rows, when n_rows and wants are the same, with the
     * same arguments in every step, so that it may be recorded. */
    MUST_USE enum status (*sample)(struct gpu_sampler *w, float *logits, uint32_t stride,
                                   struct error *err);
    /* Asks for what comes back: the results of n_places, and last of the first n_slots (a rank that
     * has it from another's device). */
    MUST_USE enum status (*end)(struct gpu_sampler *w, uint32_t i_step, uint32_t n_places,
                                uint32_t n_slots, struct error *err);
    /* STATUS_AGAIN: not yet. */
    MUST_USE enum status (*query)(struct gpu_sampler *w, uint32_t i_step, struct error *err);
    MUST_USE enum status (*wait)(struct gpu_sampler *w, uint32_t i_step, struct error *err);
    void (*close)(struct gpu_sampler *w);
};
struct gpu_sampler {
    const struct gpu_sampler_ops *ops;
    struct gpu_sampler_options o;
    uint64_t n_bytes; /* of the device's memory */
    uint32_t *last;   /* [n_slots] of the device: the id that was sampled last for each */
    const struct gpu_sampled *results[GPU_SAMPLER_STEPS]; /* [n_places] of the host, after wait */
    const uint32_t *host_last[GPU_SAMPLER_STEPS];         /* [n_slots], likewise */
};

/* That it takes of the device's memory. */
uint64_t gpu_sampler_bytes(const struct gpu_sampler_options *o);
/* Opens the sampler of a device that cuda_device_open gave, which is closed later.
 * STATUS_NO_MEMORY. */
MUST_USE enum status gpu_sampler_open(struct device *d, const struct gpu_sampler_options *o,
                                      struct gpu_sampler **out, struct error *err);

/* The slot `take_last` of struct ops. */
void cuda_backend_take_last(struct device *d, uint32_t *ids, const uint32_t *slots,
                            const uint32_t *last, uint32_t n_rows);
