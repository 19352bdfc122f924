#pragma once
/* The log-probabilities of a prompt as they come from the head: a row for each id but the first,
 * kept until the request has been answered, and again what a resubmission need not ask for. Plain
 * data in the generation; loop thread only. */
#include "proto/messages.h"

struct prompt_scores {
    uint32_t n_rows;  /* wanted: one for each id but the first; 0: none */
    uint32_t n_known; /* [0, n_known) have come */
    uint32_t width;   /* entries that a row may have: the prompt's id, then the best */
    uint32_t *n;      /* [n_rows] entries of each; allocated with the first rows, as the rest */
    uint32_t *ranks;  /* [n_rows] of the prompt's ids */
    uint32_t *ids;    /* [n_rows][width] */
    float *values;
};

/* k: sampling_params.n_prompt_logprobs, >= 0. */
void prompt_scores_init(struct prompt_scores *s, uint32_t n_prompt, int32_t k);
void prompt_scores_fini(struct prompt_scores *s);
static inline bool prompt_scores_complete(const struct prompt_scores *s)
{
    return s->n_known == s->n_rows;
}
enum scores_verdict { SCORES_TAKEN, SCORES_MISSING, SCORES_NO_MEMORY };
/* The rows of one item: what is known is passed over. MISSING: some before them have not come. */
enum scores_verdict prompt_scores_take(struct prompt_scores *s, const struct tokens_item *t);
