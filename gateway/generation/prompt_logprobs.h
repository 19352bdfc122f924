#pragma once
/* Keeps log-probabilities of a prompt as the head sends them: one row for each id but the first.
 * The rows are kept until the request is answered, and a resubmission asks only for missing
 * rows. The rows are plain data within the generation, and only the loop thread uses them. */
#include "proto/messages.h"

struct prompt_logprobs {
    uint32_t n_rows;  /* rows that the request asks for: one for each id but the first; 0 = none */
    uint32_t n_known; /* rows [0, n_known) have arrived */
    uint32_t width;   /* entries per row: the prompt's id, then the best ids */
    /* [n_rows]: entries in each row; allocated with the first rows, like the arrays below */
    uint32_t *n;
    uint32_t *ranks; /* [n_rows]: ranks of the prompt's ids */
    uint32_t *ids;   /* [n_rows][width]: ids of the entries */
    float *values;
};

/* Initialises the rows. `k` is `sampling_params.n_prompt_logprobs`, at least 0. */
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
/* Takes the rows of one item and skips known rows. Returns MISSING when earlier rows have not
 * arrived. */
enum prompt_logprobs_verdict prompt_logprobs_take(struct prompt_logprobs *s,
                                                  const struct tokens_item *t);
