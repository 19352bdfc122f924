#pragma once
/* Keeps a prompt's log-probabilities on their way from the ranks to the request's gateway. Each
 * id but the first has a row, in order. A row is kept from the result that contains it until it
 * has been sent. Rows arrive in chunks with the results of the steps that compute them. Rows
 * that are computed again (after a preemption or a lost replica) are already known and are
 * dropped. The request owns the rows. */
#include "head/request/state.h"

struct logprob_chunk;
struct request_prompt_logprobs {
    uint32_t n_rows;      /* number of rows of the whole prompt: n_prompt - 1 */
    uint32_t n_known;     /* rows in [0, n_known) have arrived */
    uint32_t n_delivered; /* rows in [0, n_delivered) were passed to the gateway's link */
    /* chunks with the rows in [n_delivered, n_known), the oldest first */
    struct logprob_chunk *chunks;
    struct logprob_chunk **newest; /* link where the next chunk is appended */
    bool out_of_memory;            /* a chunk could not be kept, so the request will fail */
};

/* Allocates `r->prompt_logprobs` on the request's arena. `n_received` is the number of rows that
 * the request's gateway already has. Returns false when memory is missing. */
bool request_prompt_logprobs_init(struct request *r, uint32_t n_received);
void request_prompt_logprobs_fini(struct request *r);
/* Returns true when rows are missing, so that ranks must compute the rows. */
static inline bool request_needs_prompt_logprobs(const struct request *r)
{
    return r->has_prompt_logprobs && r->prompt_logprobs->n_known < r->prompt_logprobs->n_rows;
}
/* Returns true when the rows of the request's prompt will need logits. In a replay only the
 * sampling parameters show this: n_prompt_logprobs is INT32_MAX when all rows are known, or when
 * the prompt is computed whole for its mean (step_log.c). */
static inline bool request_asks_prompt_logprobs(const struct request *r)
{
    int32_t n = r->sampling.n_prompt_logprobs;
    return n >= 0 && n < INT32_MAX && (!r->has_prompt_logprobs || request_needs_prompt_logprobs(r));
}
/* Returns the number of rows of a run of n_tokens positions from `start`. */
static inline uint32_t request_n_prompt_logprobs_of(const struct request *r, uint32_t start,
                                                    uint32_t n_tokens)
{
    uint32_t last = r->n_prompt - 1, left = start < last ? last - start : 0;
    return n_tokens < left ? n_tokens : left;
}
/* Returns true when `rows` are exactly the rows that a run from `start` must return. */
bool request_prompt_logprobs_answer(const struct request *r, uint32_t start, uint32_t n_tokens,
                                    const struct logprob_row *rows, uint32_t n);
/* Copies the rows that are not known yet. They must have passed request_prompt_logprobs_answer. */
void request_take_prompt_logprobs(struct request *r, uint32_t start, const struct logprob_row *rows,
                                  uint32_t n);
/* Sets *rows to the next rows to send (borrowed). Returns how many of them are adjacent in
 * memory; 0 = none. */
uint32_t request_next_prompt_logprobs(const struct request *r, const struct logprob_row **rows);
void request_prompt_logprobs_delivered(struct request *r, uint32_t n);
