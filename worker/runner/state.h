#pragma once
/* What runner*.c share. */
#include "worker/runner/runner.h"

/* What is known of an operator of the program before any pass. */
enum step_kind { STEP_ONE, STEP_ADD_NORM, STEP_ROPE_KV, STEP_LINEAR_GATED, STEP_LATENT };
struct runner_step {
    /* ADD_NORM, LINEAR_GATED: it and the next one; ROPE_KV: and two; LATENT: and four */
    enum step_kind kind;
    struct moe_expert *experts; /* MOE: [experts of this rank] */
    void *table;                /* MOE, HEADS: of the device, where it wants one */
};

/* The rows of a pass that go on behind the last keys and values (runner_kept.c). */
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
    uint32_t *pad_ids, *pad_positions, *pad_late, *pad_adapters;
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

/* runner_record.c */
#define RUNNER_RECORD_ROWS 256u /* of a recorded pass at most */
void runner_make_padding(struct runner *r);
void runner_free_padding(struct runner *r);
/* b, or what is recorded in its place; *key: of the record, 0: it is not to be recorded. The same
 * on all ranks. */
const struct row_batch *runner_pad(struct runner *r, const struct row_batch *b, uint64_t *key);
/* The key of logits and draws of n rows, of the caller's own for what it draws; 0: as above. */
uint64_t runner_draw_key(const struct runner *r, uint32_t n, uint64_t key);
/* What is enqueued in one go: as it was recorded under the key, or operator by operator. */
struct runner_piece {
    uint64_t key; /* 0: it is not to be recorded */
    bool of_rows; /* as ops->record has it */
    enum status (*run)(struct runner *r, const void *ctx, struct error *err);
    const void *ctx;
};
MUST_USE enum status runner_run_piece(struct runner *r, const struct runner_piece *p,
                                      struct error *err);

/* runner_steps.c */
/* Device memory of the tables that the program's operators want. */
uint64_t runner_tables_bytes(const struct program *p, const struct device *d);
struct scratch_shape runner_scratch_shape(const struct program *p, const struct device *d,
                                          uint32_t pass_rows);
void runner_make_steps(struct runner *r);
void runner_free_steps(struct runner *r);

/* runner.c: errors as runner_forward has them; and whether to give up, which counts as progress. */
MUST_USE enum status runner_check_ranks(const struct runner *r, struct error *err);
bool runner_interrupted(const struct runner *r);

/* runner_kept.c */
void runner_make_kept(struct runner *r);
void runner_free_kept(struct runner *r);
void runner_begin_kept(struct runner *r, const struct row_batch *b);
/* Whether rows are left out in front of this operator; and what is left of the pass then. */
bool runner_cuts_here(const struct runner *r, uint32_t i_op);
struct row_batch runner_cut_rows(struct runner *r, const struct row_batch *b);
/* Where rows of the last forward lie, perhaps in out; n <= RUNNER_MAX_LOGITS_ROWS. */
const uint32_t *runner_places(const struct runner *r, const uint32_t *rows, uint32_t n,
                              uint32_t out[RUNNER_MAX_LOGITS_ROWS]);

/* runner_ops.c: what begins at operator *i_op over the rows of a pass; *i_op: behind it. */
MUST_USE enum status runner_run_step(struct runner *r, uint32_t *i_op, const struct row_batch *b,
                                     struct error *err);
/* The ranks' parts of the rows of reg, which follow each other without a gap. */
MUST_USE enum status runner_add_ranks(struct runner *r, enum reg reg, struct error *err);
