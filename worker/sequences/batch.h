#pragma once
/* Converts a plan's runs to rows, in the plan's order, and records which rows are sampled. The
 * rows are cut into passes of bounded size. A sequence may begin in one pass and end in the
 * next, since the KV values of its earlier rows are written by then. For the same reason a run
 * may attend to positions that an earlier run of the plan computes, in a block that both runs
 * have in their tables. */
#include "worker/model/row_batch.h"
#include "worker/sequences/sequences.h"

/* `batch_sample` is a row whose logits are needed: the last id of a run with `sample`, or a
 * draft token after it. */
struct batch_sample {
    uint32_t row; /* index of the row in the pass */
    const struct sequence_run *run;
    uint32_t i_sample; /* draft tokens before the sampled place: 0 .. run->n_drafted */
};

/* `batch_prompt_logprob` is a row of a prompt with prompt_logprobs whose next id is also in the
 * prompt. */
struct batch_prompt_logprob {
    uint32_t row;      /* index of the row in the pass */
    uint32_t target;   /* id that follows the row in the prompt */
    int32_t n_entries; /* value of sampling_params.n_prompt_logprobs */
};

/* `batch_pending` is a row whose id was sampled on another stage and is not known here yet
 * (sequence.is_pending). */
struct batch_pending {
    uint32_t row;
    const struct sequence *q; /* sequence whose newest id is this row */
};

/* Returns the number of entries of a sequence's block tables in all groups. A pass has at most
 * PASS_TABLE_ENTRIES, except a pass with a single sequence. */
uint64_t batch_table_entries(const struct sequence *q, uint32_t n_kv_groups);

struct batch {
    struct row_batch rows;
    struct batch_sample *samples; /* [n_samples]; samples of this pass */
    /* rows with prompt_logprobs, [n_prompt_logprobs] */
    struct batch_prompt_logprob *prompt_logprobs;
    struct batch_pending *pending; /* pending rows, [n_pending] */
    uint32_t *kept; /* [rows.n_kept]; sampled rows, prompt_logprobs rows and pooled rows */
    uint32_t n_samples, n_prompt_logprobs, n_pending;
    /* i_run and i_token are the start of the next pass. i_first_run and i_first_token are the
     * start of this pass. */
    struct sequence_runs runs;
    uint32_t i_run, i_token, i_first_run, i_first_token;
    uint64_t most_entries; /* limit of table entries: PASS_TABLE_ENTRIES; tests may lower it */
    uint32_t rows_of_pass;
    /* The batch owns the arrays below. Each has pass_rows elements. */
    uint32_t pass_rows, n_kv_groups;
    uint32_t n_stages; /* 0 or 1 = passes are as long as possible */
    uint32_t *ids, *positions, *adapters;
    struct kv_row *kv_rows[PROGRAM_MAX_KV_GROUPS];
};

void batch_init(struct batch *b, uint32_t pass_rows, uint32_t n_kv_groups);
/* Sets the number of stages. With stages, the rows are divided evenly among the passes. If there
 * are enough rows, there are at least as many passes as stages, so that every stage has work. */
static inline void batch_set_stages(struct batch *b, uint32_t n_stages)
{
    b->n_stages = n_stages;
}
void batch_fini(struct batch *b);
/* Sets the runs of a plan, whose draft tokens have been made, and returns to the first pass. */
void batch_begin(struct batch *b, struct sequence_runs runs);
/* Makes the next pass. Returns false when no rows are left. The caller fills in the ids of
 * pending rows. */
bool batch_next(struct batch *b);
