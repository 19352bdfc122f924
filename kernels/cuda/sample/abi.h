#pragma once
/* Sampling on the device, by the rules of worker/sampling/sampler.h and in its order. It gives
 * the same ids for the same logits, unless two scores are equal to within double's rounding.
 * This is a C ABI: all pointers except those to the structs themselves are device pointers. */
#include "kernels/cuda/device/abi.h"

/* An id and the number that is added to its logit. -INFINITY means that the id may not be
 * sampled. */
struct gpu_bias {
    uint32_t id;
    float value;
};

/* One row's parameters, uploaded. Its lists lie in the arrays of gpu_sample_params. The host has
 * checked the ranges of all numbers. */
struct gpu_sample_row {
    uint64_t seed;
    uint32_t i_prompt, i_choice;
    /* slot: index into `last` for the id; UINT32_MAX: a row that only fills up the call */
    uint32_t logits_row, slot;
    uint32_t n_ids;                        /* position that is sampled (the Philox counter) */
    uint32_t top_k;                        /* 0 = all */
    float temperature;                     /* 0 = greedy */
    float top_p, min_p;                    /* 1 and 0 = all */
    float repetition, frequency, presence; /* 1, 0 and 0 = no penalty */
    int32_t n_logprobs;                    /* -1 = none; <= GPU_SAMPLE_MAX_LOGPROBS */
    uint32_t first_bias, n_biases;         /* part of `biases`; each id appears once */
    uint32_t first_allowed, n_allowed;     /* part of `allowed`; n_allowed 0 = every id */
    /* word of `mask`: id i may be sampled if bit i % 32 of word i / 32 is set; UINT32_MAX = no
     * mask */
    uint32_t first_mask;
    uint32_t first_history, n_history; /* part of `history`: prompt ids, then outputs */
    uint32_t n_prompt;   /* prompt ids in it; they count for the repetition penalty only */
    bool last_is_output; /* last[slot] is one more output behind the history */
};

#define GPU_SAMPLE_MAX_LOGPROBS 64u
struct gpu_sampled {
    uint32_t id;
    float gap;     /* see sampler_choice */
    float best;    /* largest raw logit; -INFINITY or FLT_MAX: the weights are broken */
    uint32_t rank; /* rank of the id by raw logit, from 1; 0 = no log-probabilities */
    float logprob;
    uint32_t n_top;
    uint32_t top_ids[GPU_SAMPLE_MAX_LOGPROBS]; /* best first */
    float top_logprobs[GPU_SAMPLE_MAX_LOGPROBS];
};

/* Features that at least one row of a call uses. Kernels of other features are not launched. */
struct gpu_sample_wants {
    bool changes; /* biases, allowed ids, a mask, penalties */
    bool filters; /* top_k, top_p, min_p */
    bool draws;   /* a temperature above 0: random draws choose */
    bool logprobs;
};

struct gpu_sample_params {
    float *logits;                       /* [..][stride]; rows with changes are overwritten */
    uint32_t stride, vocab_size, n_rows; /* n_rows <= GPU_SAMPLE_MAX_ROWS */
    struct gpu_sample_wants wants;
    const struct gpu_sample_row *rows; /* [n_rows] */
    const struct gpu_bias *biases;
    const uint32_t *allowed, *mask, *history;
    uint32_t *last;          /* [slots] */
    struct gpu_sampled *out; /* [n_rows] */
    void *scratch;           /* scratch_bytes of memory, aligned to 16 bytes */
    uint64_t scratch_bytes;
};
#define GPU_SAMPLE_MAX_ROWS 1024u
uint64_t cuda_sample_scratch_bytes(uint32_t n_rows, uint32_t vocab_size);
/* Enqueues the sampling of all rows. Returns STATUS_INVALID when the scratch is too small or
 * there are too many rows. Ids in lists that are beyond the vocabulary are ignored. */
MUST_USE enum status cuda_sample(struct gpu_stream *s, const struct gpu_sample_params *p,
                                 struct error *err);
/* Sets ids[row] = last[slots[row]], unless slots[row] is UINT32_MAX: for rows whose id only the
 * device knows. */
MUST_USE enum status cuda_take_last(struct gpu_stream *s, uint32_t *ids, const uint32_t *slots,
                                    const uint32_t *last, uint32_t n_rows, struct error *err);
