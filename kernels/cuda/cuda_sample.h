#pragma once
/* Drawing on the device, by the rules of worker/sampler.h and in its order: the same ids for the
 * same logits, but where two scores are equal to within double's rounding. C ABI: all pointers but
 * the structs themselves are the device's. */
#include "kernels/cuda/cuda_ops.h"

/* An id and what is added to its logit; -INFINITY: it may not be drawn. */
struct gpu_bias {
    uint32_t id;
    float value;
};

/* One row's parameters, uploaded. Lists lie in the arrays of gpu_sample_params. */
struct gpu_sample_row {
    uint32_t logits_row, slot; /* slot: where its id is put, of `last` */
    uint32_t n_ids;            /* the position that is drawn (the Philox counter) */
    uint32_t top_k;            /* 0: all */
    float temperature, top_p, min_p;
    float repetition, frequency, presence; /* 1, 0, 0: none */
    uint64_t seed;
    uint32_t i_prompt, i_choice;
    int32_t n_logprobs;                /* -1: none */
    uint32_t first_bias, n_biases;     /* of biases */
    uint32_t first_allowed, n_allowed; /* of allowed, ascending; n 0: every id */
    uint32_t first_mask;               /* of mask, a word per 32 ids; UINT32_MAX: none */
    uint32_t first_history, n_history; /* of history: prompt and output so far but for what the
                                        * device alone knows */
    uint32_t n_prompt;                 /* of the history: behind them are outputs */
    bool last_is_output;               /* last[slot] is one more output, which the history lacks */
    bool ignores_penalties_of_prompt;
};

#define GPU_SAMPLE_MAX_LOGPROBS 64u
struct gpu_sampled {
    uint32_t id,
        rank;  /* rank: of the drawn id by raw logit, from 1; 0: log-probabilities unwanted */
    float gap; /* as sampler_choice */
    float logprob;
    float best; /* the largest raw logit: not finite when the weights are broken */
    uint32_t n_top;
    uint32_t top_ids[GPU_SAMPLE_MAX_LOGPROBS];
    float top_logprobs[GPU_SAMPLE_MAX_LOGPROBS];
};

struct gpu_sample_params {
    const float *logits; /* [..][stride]; overwritten where a row changes them */
    uint32_t stride, vocab_size, n_rows;
    const struct gpu_sample_row *rows; /* [n_rows] */
    const struct gpu_bias *biases;
    const uint32_t *allowed, *mask, *history;
    uint32_t *last;          /* [slots] */
    struct gpu_sampled *out; /* [n_rows] */
    void *scratch;
    uint64_t scratch_bytes;
    bool any_logprobs; /* of the rows, as the host knows it: decides what is launched */
    bool all_greedy;   /* no row has anything but temperature 0 */
};
uint64_t cuda_sample_scratch_bytes(uint32_t n_rows, uint32_t vocab_size);
MUST_USE enum status cuda_sample(struct gpu_stream *s, const struct gpu_sample_params *p,
                                 struct error *err);
/* ids[row] = last[slot] where slots[row] is not UINT32_MAX: rows whose id only the device knows. */
MUST_USE enum status cuda_take_last(struct gpu_stream *s, uint32_t *ids, const uint32_t *slots,
                                    const uint32_t *last, uint32_t n_rows, struct error *err);
