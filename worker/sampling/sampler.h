#pragma once
/* Chooses the next token from one row of logits, by vLLM's rules and in its order:
 *
 *   log-probabilities are those of the raw logits (log-softmax before anything below)
 *   1 allowed ids, the mask, bad words, min_tokens (no EOS or stop id before), logit bias
 *   2 repetition penalty (prompt and output), frequency and presence penalty (output)
 *   3 temperature 0: the largest logit, the lowest id among equals; no further steps
 *   4 logits / temperature, then min_p, top_k, top_p (each on the result of the one before)
 *   5 a draw: argmax over the candidates of logit / temperature + Gumbel noise (Gumbel 1954;
 *     the same distribution as softmax). The noise depends only on seed, prompt index, choice
 *     index, position and token id, by Philox4x32-10 (Salmon et al. 2011).
 *
 * No state is carried from step to step, so a replayed, re-batched or speculated position
 * samples the same token. A token can only change when two candidates' scores are nearly equal:
 * their distance is the gap.
 *
 * The functions are pure except for their scratch memory. Each thread has its own sampler. */
#include "common/base/arena.h"
#include "proto/messages.h"
#include "worker/sampling/draw.h"

struct sampler_row {
    const struct sampling_params *params;
    const uint32_t *ids; /* [n_ids]; the prompt, then generated ids */
    uint32_t n_ids, n_prompt;
    float *logits; /* logits of the row, [vocab_size]; overwritten */
    /* [(vocab_size + 31) / 32]; a grammar's mask: bit i % 32 of word i / 32 is set when id i is
     * allowed. When other rules forbid all its ids, its first id is chosen. NULL = no grammar. */
    const uint32_t *mask;
    /* `best_id` and the next fields come from the raw logits. The backend finds them for all
     * rows at once. */
    uint32_t best_id;
    float best, second;
    double sum_exp; /* sum of exp(logit - best); only for log-probabilities */
};

struct sampler_choice {
    uint32_t id;
    float gap; /* distance of the two best scores, above 0; may be inf */
};

struct sampler;
/* Creates a sampler for vocab_size >= 1. Returns NULL when there is no memory. */
struct sampler *sampler_new(uint32_t vocab_size);
void sampler_free(struct sampler *s);        /* `s` may be NULL */
uint64_t sampler_bytes(uint32_t vocab_size); /* returns the bytes of one sampler */
/* Returns true when the choice needs only best_id, best and second, because it is greedy and
 * steps 1 and 2 change nothing. The function does not check r->mask; the caller must do that.
 * r->logits may be NULL after true. */
bool sampler_needs_best_only(const struct sampler_row *r);
/* Chooses a token. *row is filled when log-probabilities are requested, with at most
 * SAMPLER_MAX_LOGPROBS on the arena; otherwise it may be NULL. The only error is
 * STATUS_NO_MEMORY. Ids outside the vocabulary, and parameters that are out of range or not
 * numbers, are ignored. When no id is allowed, best_id is chosen. */
#define SAMPLER_MAX_LOGPROBS 64u
MUST_USE enum status sampler_choose(struct sampler *s, const struct sampler_row *r,
                                    struct arena *arena, struct sampler_choice *out,
                                    struct logprob_row *row, struct error *err);
/* Writes to `row` the log-probability of `id`, the id that follows the row, with its rank and
 * the best ids. The arrays of `row` belong to the caller. On entry ids.n is their size, from 1
 * to 1 + SAMPLER_MAX_LOGPROBS. On return ids.n and values.n are the number of entries. Reads
 * only logits (unchanged), best and sum_exp of `r`. It uses no scratch memory, so any thread may
 * call it. */
void sampler_logprob(const struct sampler_row *r, uint32_t vocab_size, uint32_t id,
                     struct logprob_row *row);
