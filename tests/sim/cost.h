#pragma once
/* Computes the time of a step on a rank: a + b * decode rows + c * prompt tokens + d * positions
 * of context that attention reads (+ e * draft tokens in a row). It is linear, so that a
 * complicated model cannot hide a wrong schedule. The functions are pure and may run on any
 * thread. */
#include <stdint.h>

struct cost_model {
    const char *name;
    uint64_t step_ns;    /* base time of a step: weights read once, launches, collectives */
    uint64_t decode_ns;  /* time per decode row */
    uint64_t prompt_ns;  /* time per prompt token */
    uint64_t context_ps; /* picoseconds per position of KV cache read */
    /* The fields below describe speculation. A draft model drafts for all sequences at once, one
     * position after another. */
    uint64_t draft_ns; /* time per draft position */
    /* chance that a draft token is accepted when all earlier draft tokens were accepted */
    uint32_t accept_percent;
};

/* Describes the work of a step. */
struct cost_work {
    uint64_t n_decodes, n_prompt, n_context;
    /* most draft tokens of a sequence; n_decodes has the rows of all sequences */
    uint64_t n_drafts;
};

/* Describes the demo model on two CPU cores (bench/results/serving.md: 137 tokens/s with one
 * stream, 604 with eight, 1,741 prompt tokens/s): 7.3 ms = step + row, 13.2 ms = step + 8 rows.
 * KV cache: 18 layers of one head of 256, keys and values in bf16 = 18 KiB a position at 34
 * GB/s. */
extern const struct cost_model cost_cpu_demo;
/* Describes a dense 8B model in bf16 on an H200, by roofline arithmetic from measured ceilings
 * (4.3 TB/s, 785 TFLOP/s). Weights: 16 GB = 3.7 ms, plus 0.3 ms of launches. Prompt token: 16
 * GFLOP at 70 % of the ceiling = 29 us. KV cache: 32 layers of 8 heads of 128 = 128 KiB a
 * position = 30.5 ns. A decode row computes while the weights stream; 5 us remain for sampling
 * its token. */
extern const struct cost_model cost_h200_8b;
/* Describes cost_h200_8b with a draft model of 1B: 2 GB of weights for each draft token, and its
 * launches. The rate of 7 accepted draft tokens in 10 is our choice. */
extern const struct cost_model cost_h200_8b_draft;

uint64_t cost_step_ns(const struct cost_model *m, const struct cost_work *w);
