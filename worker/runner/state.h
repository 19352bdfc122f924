#pragma once
/* A runner: its memory and what is known of its program and of the pass at hand. For the files of
 * this folder, tests and benches. */
#include "worker/model/row_batch.h"
#include "worker/runner/setup.h"

/* What is known of an operator of the program before any pass. */
enum step_kind { STEP_ONE, STEP_ADD_NORM, STEP_ROPE_KV, STEP_LINEAR_GATED, STEP_LATENT };
struct runner_step {
    /* ADD_NORM, LINEAR_GATED: it and the next one; ROPE_KV: and two; LATENT: and four */
    enum step_kind kind;
    struct moe_expert *experts; /* MOE: [experts of this rank] */
    void *table;                /* MOE, HEADS: of the device, where it wants one */
};

/* The rows of a pass that go on behind the last keys and values (kept.h). */
struct runner_kept {
    uint32_t i_op, regs;  /* behind the last operator of all rows, 0: none; a bit for each buffer
                             that is read from there on */
    const uint32_t *rows; /* [n] of this pass, in order, the caller's; NULL: all */
    uint32_t n;
    uint32_t *adapters; /* [pass_rows], owned, as these: */
    struct kv_row *kv_rows[PROGRAM_MAX_KV_GROUPS];
};

/* One piece of device memory, cut up once. */
struct runner {
    struct runner_setup s;
    const struct ops *ops;
    uint8_t *memory;
    uint64_t n_bytes;
    void *regs[REG_COUNT];
    void *gathered;          /* [logits_rows, best_rows][hidden]: whichever are more */
    float *logits;           /* [logits_rows][logits_width] */
    uint32_t logits_width;   /* the vocabulary on rank 0, elsewhere the rank's part of it */
    struct logits_top *tops; /* as many */
    double *exp_sums;        /* [logits_rows] */
    float *inv_freqs[PROGRAM_MAX_ROPES];
    float *angles[PROGRAM_MAX_ROPES];   /* [pass_rows][n][2] */
    float *sums;                        /* [pass_rows] of squares, of a norm that the ranks share */
    uint32_t *expert_ids, *expert_list; /* [pass_rows][n_chosen], [pass_rows]: of a mixture */
    float *expert_shares;               /* [pass_rows][n_chosen] */
    uint8_t *tables;                    /* of the steps */
    void *scratch;
    uint64_t scratch_bytes;
    struct runner_step *steps; /* [n_ops] */
    float *host;             /* [RUNNER_LOGITS_ROWS] of logits or of hidden states; NULL: on_host */
    uint16_t *host_rows;     /* [RUNNER_LOGITS_ROWS][hidden] as they come; NULL: on_host */
    struct row_batch padded; /* a small pass with rows behind it that nobody reads; its arrays: */
    /* [RUNNER_RECORD_ROWS], as of kv_rows; NULL: no records */
    uint32_t *pad_ids, *pad_positions, *pad_pending, *pad_adapters;
    struct kv_row *pad_kv_rows[PROGRAM_MAX_KV_GROUPS];
    bool told_of_records, told_of_refusal;
    bool is_eager; /* told to be, by runner_set_eager */
    struct runner_kept kept;
    uint32_t n_rows;   /* of the last forward, and those behind them; of kept ones in the end */
    bool has_adapters; /* some of its rows */
};

static inline struct view runner_view(const struct runner *r, enum reg reg)
{
    return (struct view){r->regs[reg], r->s.program->widths[reg]};
}

/* Errors as runner_forward has them. */
MUST_USE enum status runner_check_ranks(const struct runner *r, struct error *err);
/* Whether to give up; to ask counts as progress. */
bool runner_interrupted(const struct runner *r);
