#pragma once
/* Declares sampling on the device, by the rules of worker/sampling/sampler.h and in its order.
 * The device samples the same ids as the host for the same logits, unless two scores are equal
 * to within double's rounding. This is a C ABI: all pointers except those to the structs
 * themselves are device pointers. */
#include "kernels/cuda/device/abi.h"

/* `gpu_bias` is an id and the number that is added to its logit. -INFINITY means that the id may
 * not be sampled. */
struct gpu_bias {
    uint32_t id;
    float value;
};

/* `gpu_sample_row` holds one row's parameters, uploaded. Its lists are in the arrays of
 * gpu_sample_params. The host has checked the ranges of all numbers. */
struct gpu_sample_row {
    uint64_t seed;
    uint32_t i_prompt, i_choice;
    /* slot: index into `last` for the id; UINT32_MAX: a row that only fills up the call */
    uint32_t logits_row, slot;
    uint32_t n_ids;     /* position that is sampled, which is the Philox counter */
    uint32_t top_k;     /* number of best ids that may be sampled; 0 = all */
    float temperature;  /* sampling temperature; 0 = greedy */
    float top_p, min_p; /* top_p 1 and min_p 0 mean that all ids may be sampled */
    float repetition, frequency, presence; /* the values 1, 0 and 0 mean no penalty */
    /* `n_logprobs` is at most GPU_SAMPLE_MAX_LOGPROBS; -1 = no log-probabilities. */
    int32_t n_logprobs;
    uint32_t first_bias, n_biases; /* this row's part of `biases`, in which each id appears once */
    /* this row's part of `allowed`; n_allowed 0 = every id is allowed */
    uint32_t first_allowed, n_allowed;
    /* `first_mask` is the first word of `mask` for this row: id i may be sampled if bit i % 32
     * of word i / 32 is set. UINT32_MAX = no mask. */
    uint32_t first_mask;
    uint32_t first_history, n_history; /* this row's part of `history`: prompt ids, then outputs */
    /* number of prompt ids in the history; they count for the repetition penalty only */
    uint32_t n_prompt;
    bool last_is_output; /* whether last[slot] is one more output behind the history */
};

#define GPU_SAMPLE_MAX_LOGPROBS 64u
struct gpu_sampled {
    uint32_t id;
    float gap;     /* difference between the two best scores, as in struct sampler_choice */
    float best;    /* largest raw logit; -INFINITY or FLT_MAX: the weights are damaged */
    uint32_t rank; /* rank of the id by raw logit, from 1; 0 = no log-probabilities */
    float logprob;
    uint32_t n_top;
    uint32_t top_ids[GPU_SAMPLE_MAX_LOGPROBS]; /* ids with the largest raw logits, best first */
    float top_logprobs[GPU_SAMPLE_MAX_LOGPROBS];
};

/* `gpu_sample_wants` names the features that at least one row of a call uses. Kernels of other
 * features are not launched. */
struct gpu_sample_wants {
    bool changes; /* some row has biases, allowed ids, a mask or penalties */
    bool filters; /* some row has top_k, top_p or min_p */
    bool draws;   /* some row has a temperature above 0, so random draws choose its id */
    bool logprobs;
};

struct gpu_sample_params {
    float *logits; /* logits with `stride` floats a row; rows with changes are overwritten */
    uint32_t stride, vocab_size, n_rows; /* n_rows <= GPU_SAMPLE_MAX_ROWS */
    struct gpu_sample_wants wants;
    const struct gpu_sample_row *rows; /* `rows` has the shape [n_rows] */
    const struct gpu_bias *biases;
    const uint32_t *allowed, *mask, *history;
    uint32_t *last;          /* `last` has the shape [slots] */
    struct gpu_sampled *out; /* `out` has the shape [n_rows] */
    void *scratch;           /* scratch memory of scratch_bytes, aligned to 16 bytes */
    uint64_t scratch_bytes;
};
#define GPU_SAMPLE_MAX_ROWS 1024u
uint64_t cuda_sample_scratch_bytes(uint32_t n_rows, uint32_t vocab_size);
/* Enqueues the sampling of all rows. Returns STATUS_INVALID when the scratch is too small or
 * there are too many rows. Ids in lists that are beyond the vocabulary are ignored. */
MUST_USE enum status cuda_sample(struct gpu_stream *s, const struct gpu_sample_params *p,
                                 struct error *err);
/* Sets ids[row] = last[slots[row]], unless slots[row] is UINT32_MAX. It is used for rows whose
 * id only the device knows. */
MUST_USE enum status cuda_take_last(struct gpu_stream *s, uint32_t *ids, const uint32_t *slots,
                                    const uint32_t *last, uint32_t n_rows, struct error *err);
