#pragma once
/* The ids, log-probabilities and vectors of steps, on their way to the result. Memory is the step's
 * arena. Compute thread. */
#include "common/base/arena.h"
#include "proto/messages.h"
#include "worker/sequences/sequences.h"

/* The places that a step samples: one behind the last id of each run with `sample`, and one behind
 * each of its draft tokens. A run's places lie side by side, runs in the order of the plan. */
struct sampled {
    uint32_t n_places, n_items; /* what there is room for: places, runs with `sample` */
    bool drafted;               /* some place is behind a draft token; a run may have none at all */
    uint32_t *ids; /* [n_places + n_items]: behind the ids how many of each run count */
    float *gaps;   /* [n_places] the sampling rank's, as all that follows */
    struct logprob_row *logprobs;       /* [n_places]; NULL: nobody asked */
    uint32_t *mask_units, *matcher_kib; /* [n_places]; both NULL: nobody has a grammar */
    uint32_t n_done;                    /* places sampled so far */
    struct result_item *items;          /* [n_items] */
};

/* The id that a step under way samples for a run with `sample`. The sequence may be gone by then.
 */
struct item_in_flight {
    uint32_t slot, position; /* of the id in the sequence */
    uint64_t serial;
    bool logprobs;
    struct f32_span vector;
};

/* The prompt_logprobs that a step makes, in the order of the plan, and on the sampling rank what
 * its result holds then: an item for each run that samples or has some. */
struct step_prompt_logprobs {
    uint32_t n_rows, n_done;   /* in all; of the passes so far */
    struct logprob_row *rows;  /* [n_rows] the sampling rank's, as all that follows */
    uint32_t *targets;         /* [n_rows] whose they are */
    struct result_item *items; /* [n_items] */
    bool *samples;             /* [n_items] */
    uint32_t n_items;
};

/* A step between begin and finish. */
struct step_in_flight {
    uint64_t term_epoch, step, begun_ns, enqueued_ns;
    uint32_t n_drafted, i_sampler; /* i_sampler: of the sampling device's steps */
    bool on_device;                /* what was sampled has not come to the host */
    struct arena *arena;           /* of the job: sampled, items and what they point to */
    struct sampled sampled;
    struct step_prompt_logprobs prompt_logprobs; /* on_device: at the places behind sampled's */
    struct item_in_flight *items; /* [sampled.n_items]; on_device without draft tokens */
    struct sequence_runs
        runs; /* on_device with draft tokens: no plan is applied before it is resolved */
};
