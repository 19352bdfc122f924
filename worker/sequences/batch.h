#pragma once
/* A plan's runs as rows, in the plan's order, and which of them are sampled. Cut into passes of a
 * bounded number of rows: a sequence may begin in one pass and end in the next, since its earlier
 * rows' KV is written by then. For the same reason a run may attend to what an earlier run of the
 * plan computes, in a block that both have in their tables. */
#include "worker/model/row_batch.h"
#include "worker/sequences/sequences.h"

/* A row whose logits are wanted: the last id of a run with `sample`, and each draft token behind
 * it. */
struct batch_sample {
    uint32_t row; /* of the pass */
    const struct sequence_run *run;
    uint32_t i_sample; /* draft tokens before the place that is sampled: 0 .. run->n_drafted */
};

/* A row whose next id is one of a prompt with prompt_logprobs. */
struct batch_prompt_logprob {
    uint32_t row;      /* of the pass */
    uint32_t target;   /* that id */
    int32_t n_entries; /* as sampling_params.n_prompt_logprobs */
};

/* A row whose id another stage has sampled and this one does not know yet (sequence.is_pending). */
struct batch_pending {
    uint32_t row;
    const struct sequence *q; /* its newest id */
};

/* Of a sequence in all groups; a pass has PASS_TABLE_ENTRIES, those of one sequence always fit. */
uint64_t batch_table_entries(const struct sequence *q, uint32_t n_kv_groups);

struct batch {
    struct row_batch rows;
    struct batch_sample *samples;                 /* [n_samples] of this pass */
    struct batch_prompt_logprob *prompt_logprobs; /* [n_prompt_logprobs] */
    struct batch_pending *pending;                /* [n_pending] */
    uint32_t *kept; /* [rows.n_kept]: rows of these, and of what is pooled */
    uint32_t n_samples, n_prompt_logprobs, n_pending;
    /* where the next pass begins, and where this one did */
    struct sequence_runs runs;
    uint32_t i_run, i_token, i_first_run, i_first_token;
    uint64_t most_entries; /* PASS_TABLE_ENTRIES */
    uint32_t rows_of_pass;
    /* owned, [pass_rows] */
    uint32_t pass_rows, n_kv_groups;
    uint32_t n_stages; /* 0, 1: passes are as long as they may be */
    uint32_t *ids, *positions, *adapters;
    struct kv_row *kv_rows[PROGRAM_MAX_KV_GROUPS];
};

void batch_init(struct batch *b, uint32_t pass_rows, uint32_t n_kv_groups);
/* In stages: rows are shared out evenly among passes, and among as many as there are stages when
 * there are enough of them, so that every stage has one to work on. */
static inline void batch_set_stages(struct batch *b, uint32_t n_stages)
{
    b->n_stages = n_stages;
}
void batch_fini(struct batch *b);
/* Draft tokens have been made. */
void batch_begin(struct batch *b, struct sequence_runs runs);
/* The next pass; false: there is none. The ids of late rows are the caller's to fill in. */
bool batch_next(struct batch *b);
