#pragma once
/* How long a rank takes for a step: a + b * rows that decode + c * prompt tokens + d * positions of
 * context that attention reads (+ e * draft tokens in a row). Linear, so that a wrong schedule
 * cannot hide behind a clever model. Pure. */
#include <stdint.h>

struct cost_model {
    const char *name;
    uint64_t step_ns;    /* weights read once, launches, collectives */
    uint64_t decode_ns;  /* per row that decodes */
    uint64_t prompt_ns;  /* per prompt token */
    uint64_t context_ps; /* per position of KV read: picoseconds */
    /* Speculation: a draft model drafts for all sequences at once, one place after another. */
    uint64_t draft_ns;       /* per place */
    uint32_t accept_percent; /* how often a draft token is right when those before it were */
};

/* What a step runs. */
struct cost_work {
    uint64_t n_decodes, n_prompt, n_context;
    uint64_t n_drafts; /* the most that a sequence gets; n_decodes has the rows of all */
};

/* The demo model on two CPU cores (bench/results/serving.md: 137 tokens/s with one stream, 604
 * with eight, 1,741 prompt tokens/s): 7.3 ms = step + row, 13.2 ms = step + 8 rows. KV: 18 layers
 * of one head of 256, keys and values in bf16 = 18 KiB a position at 34 GB/s. */
extern const struct cost_model cost_cpu_demo;
/* A dense 8B model in bf16 on an H200, by roofline arithmetic from measured ceilings (4.3 TB/s,
 * 785 TFLOP/s): 16 GB of weights = 3.7 ms and 0.3 ms of launches; 16 GFLOP a token at 70 % of the
 * ceiling = 29 us; KV: 32 layers of 8 heads of 128 = 128 KiB a position = 30.5 ns. A row that
 * decodes computes while the weights stream; 5 us are left for sampling its token. */
extern const struct cost_model cost_h200_8b;
/* The same with a draft model of 1B in front: 2 GB of weights a draft token, and its launches. That
 * it is right 7 times of 10 is a choice. */
extern const struct cost_model cost_h200_8b_draft;

uint64_t cost_step_ns(const struct cost_model *m, const struct cost_work *w);
