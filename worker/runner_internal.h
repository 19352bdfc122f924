#pragma once
/* What runner.c and runner_ops.c share. */
#include "worker/runner.h"

/* One piece of device memory, cut up once. */
struct runner {
    struct runner_setup s;
    const struct ops *ops;
    uint8_t *memory;
    uint64_t n_bytes;
    void *regs[REG_COUNT];
    void *gathered;        /* [RUNNER_LOGITS_ROWS][hidden] */
    float *logits;         /* [RUNNER_LOGITS_ROWS][logits_width] */
    uint32_t logits_width; /* the vocabulary on rank 0, elsewhere the rank's part of it */
    float *angles[PROGRAM_MAX_ROPES];   /* [pass_rows][n][2] */
    float *sums;                        /* [pass_rows] of squares, of a norm that the ranks share */
    uint32_t *expert_ids, *expert_list; /* [pass_rows][n_chosen], [pass_rows]: of a mixture */
    float *expert_shares;               /* [pass_rows][n_chosen] */
    struct moe_expert *experts;         /* [n_experts] of the mixture that is run */
    uint32_t n_rows;                    /* of the last forward */
    bool has_adapters;                  /* some of its rows */
};

static inline struct view runner_view(const struct runner *r, enum reg reg)
{
    return (struct view){r->regs[reg], r->s.program->widths[reg]};
}

/* runner_ops.c: one operator over the rows of a pass. */
MUST_USE enum status runner_run_op(struct runner *r, const struct op *o, const struct row_batch *b,
                                   struct error *err);
/* The ranks' parts of the rows of reg, which follow each other without a gap. */
MUST_USE enum status runner_add_ranks(struct runner *r, enum reg reg, struct error *err);
