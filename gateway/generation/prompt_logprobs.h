#pragma once
/* The log-probabilities of a prompt as they come from the head: a row for each id but the first,
 * kept until the request has been answered, and again what a resubmission need not ask for. Plain
 * data in the generation; loop thread only. */
#include "proto/messages.h"

struct prompt_logprobs {
    uint32_t n_rows;  /* wanted: one for each id but the first; 0: none */
    uint32_t n_known; /* [0, n_known) have come */
    uint32_t width;   /* entries that a row may have: the prompt's id, then the best */
    uint32_t *n;      /* [n_rows] entries of each; allocated with the first rows, as the rest */
    uint32_t *ranks;  /* [n_rows] of the prompt's ids */
    uint32_t *ids;    /* [n_rows][width] */
    float *values;
};

/* k: sampling_params.n_prompt_logprobs, >= 0. */
void prompt_logprobs_init(struct prompt_logprobs *s, uint32_t n_prompt, int32_t k);
void prompt_logprobs_fini(struct prompt_logprobs *s);
static inline bool prompt_logprobs_complete(const struct prompt_logprobs *s)
{
    return s->n_known == s->n_rows;
}
enum prompt_logprobs_verdict {
    PROMPT_LOGPROBS_TAKEN,
    PROMPT_LOGPROBS_MISSING,
    PROMPT_LOGPROBS_NO_MEMORY
};
/* The rows of one item: what is known is passed over. MISSING: some before them have not come. */
enum prompt_logprobs_verdict prompt_logprobs_take(struct prompt_logprobs *s,
                                                  const struct tokens_item *t);
