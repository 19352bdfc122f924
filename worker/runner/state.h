#pragma once
/* Declares the state of a runner: its memory, the steps of its program and the present pass. It
 * is for the files of this folder, tests and benchmarks. */
#include "worker/model/row_batch.h"
#include "worker/runner/setup.h"

/* `step_kind` is the kind of a step of the program; steps are found before any pass. */
enum step_kind { STEP_ONE, STEP_ADD_NORM, STEP_ROPE_KV, STEP_LINEAR_GATED, STEP_LATENT };
struct runner_step {
    /* A step has these numbers of operators: ONE 1; ADD_NORM and LINEAR_GATED 2; ROPE_KV 3;
     * LATENT 5. */
    enum step_kind kind;
    struct moe_expert *experts; /* MOE: the experts of this rank */
    void *table; /* MOE, HEADS: table in device memory; NULL = the device needs none */
};

/* `runner_kept` describes the rows of a pass that are still computed after the last keys and
 * values (kept.h). */
struct runner_kept {
    /* i_op: first operator that runs only the kept rows, 0 = none; regs: one bit for each buffer
     * that this and later operators read */
    uint32_t i_op, regs;
    const uint32_t *rows; /* [n] rows of this pass in ascending order, borrowed; NULL = all */
    uint32_t n;
    uint32_t *adapters; /* adapters of the kept rows, [pass_rows]; owned, like kv_rows */
    struct kv_row *kv_rows[PROGRAM_MAX_KV_GROUPS];
};

/* `runner` holds the state of a runner. Its buffers are cut from one allocation of device
 * memory. */
struct runner {
    struct runner_setup s;
    const struct ops *ops;
    uint8_t *memory;
    uint64_t n_bytes;
    void *regs[REG_COUNT];
    void *gathered; /* normalised rows, [larger of logits_rows and best rows][hidden] */
    float *logits;  /* logits of the rows, [logits_rows][logits_width] */
    /* width of the logits; on rank 0 the vocabulary, on other ranks their part of it */
    uint32_t logits_width;
    struct logits_top *tops; /* best logits of each row; as many rows as `gathered` */
    double *exp_sums;        /* sums of exp(logit - best), [logits_rows] */
    float *inv_freqs[PROGRAM_MAX_ROPES];
    /* cos and sin of the rows' rotary angles, [pass_rows][n][2] */
    float *angles[PROGRAM_MAX_ROPES];
    float *sums; /* [pass_rows] sums of squares, for a norm that is split over ranks */
    /* chosen experts of a mixture, [pass_rows][n_chosen], and the rows of one expert,
     * [pass_rows] */
    uint32_t *expert_ids, *expert_list;
    float *expert_shares; /* shares of the chosen experts, [pass_rows][n_chosen] */
    uint8_t *tables;      /* tables of the steps */
    void *scratch;
    uint64_t scratch_bytes;
    struct runner_step *steps; /* steps of the program, [n_ops] */
    float *host;         /* [RUNNER_LOGITS_ROWS] rows of logits or hidden states; NULL if on_host */
    uint16_t *host_rows; /* [RUNNER_LOGITS_ROWS][hidden] as read from the device; NULL if on_host */
    struct row_batch padded; /* a small pass with unused rows at the end; its arrays follow */
    /* arrays of the padded pass, [RUNNER_RECORD_ROWS]; NULL = no recordings */
    uint32_t *pad_ids, *pad_positions, *pad_pending, *pad_adapters;
    struct kv_row *pad_kv_rows[PROGRAM_MAX_KV_GROUPS];
    bool told_of_records, told_of_refusal;
    bool is_eager; /* set by runner_set_eager */
    struct runner_kept kept;
    uint32_t n_rows;   /* rows of the last forward with padding; after the cut: the kept rows */
    bool has_adapters; /* some row of the pass has an adapter */
};

static inline struct view runner_view(const struct runner *r, enum reg reg)
{
    return (struct view){r->regs[reg], r->s.program->widths[reg]};
}

/* Returns an error when the collectives are not joined as the program's rank. Errors are those
 * of runner_forward. */
MUST_USE enum status runner_check_ranks(const struct runner *r, struct error *err);
/* Returns true when the pass should stop. Each call also increments the progress counter. */
bool runner_interrupted(const struct runner *r);
