#pragma once
/* Drives an executor on GPU 0 the way a head does: plans go directly to it, two in flight.
 * Weights are made up. Each sequence has a different prompt, so that the rows of a batch choose
 * different experts. A failure ends the program. */
#include "worker/executor/state.h"

enum { DRIVE_BLOCK = 16, DRIVE_MAX_BATCH = 256, DRIVE_MAX_GROUPS = 8 };

struct drive_shape {
    const char *model; /* folder that holds the model's config.json */
    /* n_tokens: length of the long prompt; context: tokens of each sequence in a batch; n_more:
     * tokens generated behind the context */
    uint32_t n_tokens, context, n_more;
    uint32_t max_batch;
};
struct drive {
    struct drive_shape shape;
    /* n_tokens is split into n_prompts prompts of prompt_len */
    uint32_t max_len, n_prompts, prompt_len;
    struct executor *executor;
    struct engine *engine;
    struct arena arenas[EXECUTOR_MAX_IN_FLIGHT];
    uint64_t i_step;
    uint32_t n_in_flight, n_groups;
    /* The struct holds the arrays of the plans in flight. An executor reads a plan's arrays
     * until the plan has finished. */
    struct plan_run runs[EXECUTOR_MAX_IN_FLIGHT][DRIVE_MAX_BATCH];
    struct plan_admit admits[EXECUTOR_MAX_IN_FLIGHT][DRIVE_MAX_BATCH];
    struct plan_blocks tables[DRIVE_MAX_BATCH][DRIVE_MAX_GROUPS];
    uint32_t *ids, *blocks;
    uint32_t last[DRIVE_MAX_BATCH]; /* token that each slot sampled last */
};

/* Opens the model. STATUS_NO_MEMORY means that the model and this many sequences do not fit on
 * the device. The model is not open then. */
MUST_USE enum status drive_open(struct drive *d, const struct drive_shape *s, struct error *err);
void drive_close(struct drive *d);
/* Starts a sequence in each of the slots 0 to n_slots - 1, with a prompt of n_ids and space for
 * n_more tokens, in passes as full as possible. Each slot samples once. Returns when all steps
 * have finished. */
void drive_prefill(struct drive *d, uint32_t n_slots, uint32_t n_ids, uint32_t n_more);
/* Starts a step of one more token for each of the first `batch` slots, at `position`. */
void drive_decode(struct drive *d, uint32_t batch, uint32_t position);
void drive_finish(struct drive *d); /* waits until all steps in flight have finished */
void drive_leave(struct drive *d);  /* waits like drive_finish, and removes all sequences */
/* Runs the forward passes and logits of drive_decode at n positions from `first` on, with the
 * ids sampled last. The passes are enqueued one after the other. Returns the seconds of one
 * pass. */
double drive_passes(struct drive *d, uint32_t batch, uint32_t first, uint32_t n);
/* Returns the number of experts that one pass of drive_passes reads: the different experts of
 * each layer, summed over all layers, without padding rows. Returns 0 for a model without
 * experts. */
double drive_experts(struct drive *d, uint32_t batch, uint32_t position);
