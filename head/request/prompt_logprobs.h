#pragma once
/* A prompt's log-probabilities on their way from the ranks to the request's gateway: a row for each
 * id but the first, in order, each kept from the result that has it until it has been sent. Chunks
 * of a prompt come with the steps that compute them; what is computed again (after a preemption or
 * a lost replica) is known already and dropped. Owned by its request. */
#include "head/request/state.h"

struct logprob_chunk;
struct request_prompt_logprobs {
    uint32_t n_rows;               /* of the prompt: n_prompt - 1 */
    uint32_t n_known;              /* [0, n_known) have come */
    uint32_t n_delivered;          /* [0, n_delivered) were handed to the gateway's link */
    struct logprob_chunk *chunks;  /* hold [n_delivered, n_known), oldest first */
    struct logprob_chunk **newest; /* where the next one is put */
    bool out_of_memory;            /* some could not be kept: the request will fail */
};

/* On the request's arena. n_received: rows that its gateway has. False: no memory. */
bool request_prompt_logprobs_init(struct request *r, uint32_t n_received);
void request_prompt_logprobs_fini(struct request *r);
/* Ranks are to make rows that we do not have. */
static inline bool request_needs_prompt_logprobs(const struct request *r)
{
    return r->has_prompt_logprobs && r->prompt_logprobs->n_known < r->prompt_logprobs->n_rows;
}
/* The rows of its prompt are going to have logits. A replay's request says so by its sampling
 * alone: INT32_MAX where all are known, or its prompt is computed whole for its mean (step_log.c).
 */
static inline bool request_asks_prompt_logprobs(const struct request *r)
{
    int32_t n = r->sampling.n_prompt_logprobs;
    return n >= 0 && n < INT32_MAX && (!r->has_prompt_logprobs || request_needs_prompt_logprobs(r));
}
/* Rows that a run of n_tokens positions from start has. */
static inline uint32_t request_n_prompt_logprobs_of(const struct request *r, uint32_t start,
                                                    uint32_t n_tokens)
{
    uint32_t last = r->n_prompt - 1, left = start < last ? last - start : 0;
    return n_tokens < left ? n_tokens : left;
}
/* Are these what a run from start has to bring? */
bool request_prompt_logprobs_answer(const struct request *r, uint32_t start, uint32_t n_tokens,
                                    const struct logprob_row *rows, uint32_t n);
/* Copies those that are not known; they passed request_prompt_logprobs_answer. */
void request_take_prompt_logprobs(struct request *r, uint32_t start, const struct logprob_row *rows,
                                  uint32_t n);
/* The next ones to send, and how many lie side by side: views. 0: none. */
uint32_t request_next_prompt_logprobs(const struct request *r, const struct logprob_row **rows);
void request_prompt_logprobs_delivered(struct request *r, uint32_t n);
