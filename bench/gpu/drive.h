#pragma once
/* Drives an executor on GPU 0 the way a head does: plans straight into it, two under way. Weights
 * are made up. Sequences have prompts of their own, so that the rows of a batch choose experts of
 * their own. Programs end here when something fails. */
#include "worker/executor/state.h"

enum { DRIVE_BLOCK = 16, DRIVE_MAX_BATCH = 256, DRIVE_MAX_GROUPS = 8 };

struct drive_shape {
    const char *model;                  /* a folder with config.json */
    uint32_t n_tokens, context, n_more; /* of a long prompt; of each sequence of a batch, and so
                                           many behind it */
    uint32_t max_batch;
};
struct drive {
    struct drive_shape shape;
    uint32_t max_len, n_prompts, prompt_len; /* n_tokens as prompts that the model takes */
    struct executor *executor;
    struct engine *engine;
    struct arena arenas[EXECUTOR_MAX_IN_FLIGHT];
    uint64_t i_step;
    uint32_t n_in_flight, n_groups;
    /* the plan at hand: its arrays stay until it is finished, so there are as many as may be under
     * way */
    struct plan_run runs[EXECUTOR_MAX_IN_FLIGHT][DRIVE_MAX_BATCH];
    struct plan_admit admits[EXECUTOR_MAX_IN_FLIGHT][DRIVE_MAX_BATCH];
    struct plan_blocks tables[DRIVE_MAX_BATCH][DRIVE_MAX_GROUPS];
    uint32_t *ids, *blocks;
    uint32_t last[DRIVE_MAX_BATCH]; /* what each slot sampled last */
};

/* STATUS_NO_MEMORY: the model and so many sequences do not fit on this device; nothing is open
 * then. */
MUST_USE enum status drive_open(struct drive *d, const struct drive_shape *s, struct error *err);
void drive_close(struct drive *d);
/* Slots 0 to n_slots - 1 get prompts of n_ids with room for n_more, in passes as full as they may
 * be; each samples once. Returns when all of it is finished. */
void drive_prefill(struct drive *d, uint32_t n_slots, uint32_t n_ids, uint32_t n_more);
/* One more token of each of the first `batch` slots, whose row is at `position`. */
void drive_decode(struct drive *d, uint32_t batch, uint32_t position);
void drive_finish(struct drive *d); /* all that is under way */
void drive_leave(struct drive *d);  /* and all sequences */
/* Forward and logits of what drive_decode would do at n positions from `first` on, with the ids
 * sampled last, enqueued one after the other and waited for: seconds of one. */
double drive_passes(struct drive *d, uint32_t batch, uint32_t first, uint32_t n);
/* Experts that one such pass reads, over all layers: each layer's different ones, of the rows that
 * are no padding. 0 of a model that is no mixture. */
double drive_experts(struct drive *d, uint32_t batch, uint32_t position);
