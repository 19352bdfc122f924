#pragma once
/* Sampling on the device, by the rules of worker/sampling/sampler.h and in its order: the same ids
 * for the same logits, but where two scores are equal to within double's rounding. C ABI: all
 * pointers but the structs themselves are the device's. */
#include "kernels/cuda/device/abi.h"

/* An id and what is added to its logit; -INFINITY: it may not be sampled. */
struct gpu_bias {
    uint32_t id;
    float value;
};

/* One row's parameters, uploaded. Lists lie in the arrays of gpu_sample_params; numbers are in
 * their ranges (the host made them so). */
struct gpu_sample_row {
    uint64_t seed;
    uint32_t i_prompt, i_choice;
    uint32_t logits_row, slot;             /* slot: where its id is put, of `last`; UINT32_MAX: of
                                              a row that only fills the call up */
    uint32_t n_ids;                        /* the position that is sampled (the Philox counter) */
    uint32_t top_k;                        /* 0: all */
    float temperature;                     /* 0: greedy */
    float top_p, min_p;                    /* 1, 0: all */
    float repetition, frequency, presence; /* 1, 0, 0: none */
    int32_t n_logprobs;                    /* -1: none; <= GPU_SAMPLE_MAX_LOGPROBS */
    uint32_t first_bias, n_biases;         /* of biases: each id once */
    uint32_t first_allowed, n_allowed;     /* of allowed; n 0: every id */
    uint32_t first_mask; /* of mask: bit i % 32 of word i / 32 set: id i may be sampled;
                            UINT32_MAX: no mask */
    uint32_t first_history, n_history; /* of history: prompt, then outputs, */
    uint32_t n_prompt;                 /* which begin here; prompt ids count for repetition alone */
    bool last_is_output;               /* last[slot] is one more output, behind the history */
};

#define GPU_SAMPLE_MAX_LOGPROBS 64u
struct gpu_sampled {
    uint32_t id;
    float gap;     /* as sampler_choice */
    float best;    /* the largest raw logit; -INFINITY or FLT_MAX: the weights are broken */
    uint32_t rank; /* of the id by raw logit, from 1; 0: no log-probabilities were wanted */
    float logprob;
    uint32_t n_top;
    uint32_t top_ids[GPU_SAMPLE_MAX_LOGPROBS]; /* best first */
    float top_logprobs[GPU_SAMPLE_MAX_LOGPROBS];
};

/* What some row of a call has: what none has is not launched. */
struct gpu_sample_wants {
    bool changes; /* biases, allowed ids, a mask, penalties */
    bool filters; /* top_k, top_p, min_p */
    bool draws;   /* a temperature: random draws choose */
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
    void *scratch;           /* of the bytes below, aligned to 16 */
    uint64_t scratch_bytes;
};
#define GPU_SAMPLE_MAX_ROWS 1024u
uint64_t cuda_sample_scratch_bytes(uint32_t n_rows, uint32_t vocab_size);
/* STATUS_INVALID: too little scratch, or too many rows. Ids of lists that the vocabulary does not
 * have are passed over. */
MUST_USE enum status cuda_sample(struct gpu_stream *s, const struct gpu_sample_params *p,
                                 struct error *err);
/* ids[row] = last[slots[row]] but where slots[row] is UINT32_MAX: rows whose id only the device
 * knows. */
MUST_USE enum status cuda_take_last(struct gpu_stream *s, uint32_t *ids, const uint32_t *slots,
                                    const uint32_t *last, uint32_t n_rows, struct error *err);
