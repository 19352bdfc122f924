#pragma once
/* Holds ids, log-probabilities and vectors of steps until they are in the result. Memory comes
 * from the step's arena. All data here belongs to the compute thread. */
#include "common/base/arena.h"
#include "proto/messages.h"
#include "worker/sequences/sequences.h"

/* `sampled` holds the sampled places of a step. A run with `sample` has one place after its last
 * id, and one after each of its draft tokens. The places of a run are adjacent, and runs are in
 * the order of the plan. */
struct sampled {
    uint32_t n_places, n_items; /* number of places, number of runs with `sample` */
    bool drafted;               /* some run has draft tokens */
    uint32_t *ids; /* [n_places + n_items]: ids, then the number of accepted ids of each run */
    /* distance of the two best scores at each place; this field and all below are set only on the
     * sampling rank */
    float *gaps;
    struct logprob_row *logprobs; /* log-probabilities, [n_places]; NULL = not requested */
    /* costs of the grammar masks and sizes of the matchers, [n_places]; both NULL when no
     * sequence has a grammar */
    uint32_t *mask_units, *matcher_kib;
    uint32_t n_done;           /* places sampled so far */
    struct result_item *items; /* items of the result, [n_items] */
};

/* `item_in_flight` is the id that a step in flight samples for a run with `sample`. The sequence
 * may have left before the id arrives. */
struct item_in_flight {
    uint32_t slot, position; /* position of the id in the sequence */
    uint64_t serial;
    bool logprobs;
    struct f32_span vector;
};

/* `step_prompt_logprobs` holds the prompt_logprobs of a step, in the order of the plan. On the
 * sampling rank it also holds the items of the result: one for each run that samples or has
 * prompt_logprobs. */
struct step_prompt_logprobs {
    uint32_t n_rows, n_done; /* rows of the step, rows of the passes so far */
    /* [n_rows] rows; this field and all below are set only on the sampling rank */
    struct logprob_row *rows;
    uint32_t *targets;         /* [n_rows]; the prompt's id of each row */
    struct result_item *items; /* items of the result, [n_items] */
    bool *samples;             /* [n_items]; true when the run also samples */
    uint32_t n_items;
};

/* `step_in_flight` is a step between begin and finish. */
struct step_in_flight {
    uint64_t term_epoch, step, begun_ns, enqueued_ns;
    uint32_t n_drafted, i_sampler; /* i_sampler: index of the step in the device's sampler */
    bool on_device;                /* the sampled ids have not been copied to the host yet */
    struct arena *arena;           /* arena of the job, with `sampled`, `items` and their data */
    struct sampled sampled;
    /* with on_device, its places on the device follow those of `sampled` */
    struct step_prompt_logprobs prompt_logprobs;
    struct item_in_flight *items; /* [sampled.n_items]; set if on_device without draft tokens */
    /* set if on_device with draft tokens: no plan is applied before the step is resolved */
    struct sequence_runs runs;
};
