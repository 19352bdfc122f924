#pragma once
/* A plan's runs as rows, in the plan's order, and which of them are sampled. Cut into passes of a
 * bounded number of rows: a sequence may begin in one pass and end in the next, since its earlier
 * rows' KV is written by then. For the same reason a run may attend to what an earlier run of the
 * plan computes, in a block that both have in their tables. */
#include "worker/runner.h"
#include "worker/sequences.h"

/* A row whose logits are wanted: the last id of a run with `sample`, and each guess behind it. */
struct batch_sample {
    uint32_t row; /* of the pass */
    const struct sequence_run *run;
    uint32_t i_draw; /* guesses before the place that is drawn: 0 .. run->n_guessed */
};

struct batch {
    struct row_batch rows;
    struct batch_sample *samples; /* [n_samples] of this pass */
    uint32_t n_samples;
    /* where the next pass begins */
    struct sequence_runs runs;
    uint32_t i_run, i_token;
    /* owned, [pass_rows] */
    uint32_t pass_rows, n_kv_groups;
    uint32_t *ids, *positions;
    struct kv_row *kv_rows[PROGRAM_MAX_KV_GROUPS];
};

void batch_init(struct batch *b, uint32_t pass_rows, uint32_t n_kv_groups);
void batch_fini(struct batch *b);
/* Guesses have been made. */
void batch_begin(struct batch *b, struct sequence_runs runs);
/* The next pass; false: there is none. */
bool batch_next(struct batch *b);
