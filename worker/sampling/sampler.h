#pragma once
/* Chooses the next token from one row of logits, by vLLM's rules and in its order:
 *
 *   log-probabilities are of the raw logits (log-softmax before anything below)
 *   1 allowed ids, the mask, bad words, min_tokens (no EOS or stop id before), logit bias
 *   2 repetition penalty (prompt and output), frequency and presence penalty (output)
 *   3 temperature 0: the largest, the lowest id among equals. Done.
 *   4 logits / temperature, then min_p, top_k, top_p (each on what the one before left)
 *   5 a draw: argmax over the candidates of logit / temperature + Gumbel noise (Gumbel 1954; the
 *     same distribution as softmax), the noise a function of (seed, prompt index, choice index;
 *     position, token id) by Philox4x32-10 (Salmon et al. 2011). Nothing is carried from step to
 *     step, so a replayed, re-batched or speculated position samples the same token, and a token
 * only changes where two candidates' scores are about equal: that distance is the gap.
 *
 * Pure but for its scratch; one sampler per thread. */
#include "common/base/arena.h"
#include "proto/messages.h"
#include "worker/sampling/draw.h"

struct sampler_row {
    const struct sampling_params *params;
    const uint32_t *ids; /* [n_ids] prompt, then generated */
    uint32_t n_ids, n_prompt;
    float *logits; /* [vocab_size]; overwritten */
    /* [(vocab_size + 31) / 32] of a grammar: bit i % 32 of word i / 32 set: id i may be chosen.
     * Where nothing else of it may, its first id is chosen. NULL: none. */
    const uint32_t *mask;
    /* of the raw logits, made by the backend for all rows at once */
    uint32_t best_id;
    float best, second;
    double sum_exp; /* sum of exp(logit - best); only when log-probabilities are wanted */
};

struct sampler_choice {
    uint32_t id;
    float gap; /* distance of the two best scores that the choice was made by; > 0, may be inf */
};

struct sampler;
struct sampler *sampler_new(uint32_t vocab_size); /* >= 1; NULL: no memory */
void sampler_free(struct sampler *s);             /* NULL is fine */
uint64_t sampler_bytes(uint32_t vocab_size);      /* that one takes */
/* Whether all that choosing looks at is best_id, best and second: greedy, and none of 1 and 2 but a
 * mask changes anything (r->mask is not looked at; it is the caller's matter). r->logits may be
 * NULL then. */
bool sampler_needs_best_only(const struct sampler_row *r);
/* *row (when log-probabilities are wanted; may be NULL otherwise) is on the arena; of what is asked
 * for it holds at most SAMPLER_MAX_LOGPROBS. STATUS_NO_MEMORY only. Ids beyond the vocabulary and
 * parameters that are no number, or out of their range, count as not given. When nothing may be
 * chosen, best_id is. */
#define SAMPLER_MAX_LOGPROBS 64u
MUST_USE enum status sampler_choose(struct sampler *s, const struct sampler_row *r,
                                    struct arena *arena, struct sampler_choice *out,
                                    struct logprob_row *row, struct error *err);
/* The log-probability of id in front of which the row stands, its rank, and the best: those that
 * fit in row->ids.ptr and values.ptr, which have room for ids.n of 1 .. 1 + SAMPLER_MAX_LOGPROBS
 * and are filled; ids.n, values.n: how many there are. Of r only logits (of the device's numbers,
 * unchanged), best and sum_exp are looked at. No scratch: any thread. */
void sampler_logprob(const struct sampler_row *r, uint32_t vocab_size, uint32_t id,
                     struct logprob_row *row);
