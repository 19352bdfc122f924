#include "gateway/generation/prompt_logprobs.h"

#include <string.h>

#include "common/base/mem.h"

void prompt_logprobs_init(struct prompt_logprobs *s, uint32_t n_prompt, int32_t k)
{
    *s = (struct prompt_logprobs){.n_rows = n_prompt - 1, .width = (uint32_t)k + 1};
}

void prompt_logprobs_fini(struct prompt_logprobs *s)
{
    mem_free(s->n);
    mem_free(s->ranks);
    mem_free(s->ids);
    mem_free(s->values);
    *s = (struct prompt_logprobs){0};
}

/* Allocates the rows at the first call. Their number was checked against
 * PARAMS_MAX_PROMPT_LOGPROBS. */
static bool have_room(struct prompt_logprobs *s)
{
    size_t n_entries = (size_t)s->n_rows * s->width;
    if (s->values)
        return true;
    s->n = mem_try_array(s->n_rows, sizeof *s->n);
    s->ranks = mem_try_array(s->n_rows, sizeof *s->ranks);
    s->ids = mem_try_array(n_entries, sizeof *s->ids);
    s->values = mem_try_array(n_entries, sizeof *s->values);
    return s->n && s->ranks && s->ids && s->values;
}

static void keep_row(struct prompt_logprobs *s, const struct logprob_row *row)
{
    uint32_t i = s->n_known++, n = row->ids.n < row->values.n ? row->ids.n : row->values.n;
    size_t at = (size_t)i * s->width;
    n = n < s->width ? n : s->width;
    s->n[i] = n;
    s->ranks[i] = row->chosen_rank;
    if (n == 0)
        return;
    memcpy(s->ids + at, row->ids.ptr, n * sizeof *s->ids);
    memcpy(s->values + at, row->values.ptr, n * sizeof *s->values);
}

enum prompt_logprobs_verdict prompt_logprobs_take(struct prompt_logprobs *s,
                                                  const struct tokens_item *t)
{
    if (s->n_rows == 0 || t->n_prompt_logprobs == 0)
        return PROMPT_LOGPROBS_TAKEN; /* the request did not ask for these rows */
    if (t->prompt_start > s->n_known)
        return PROMPT_LOGPROBS_MISSING;
    if (!have_room(s))
        return PROMPT_LOGPROBS_NO_MEMORY;
    for (uint32_t i = s->n_known - t->prompt_start;
         i < t->n_prompt_logprobs && s->n_known < s->n_rows; i++)
        keep_row(s, &t->prompt_logprobs[i]);
    return PROMPT_LOGPROBS_TAKEN;
}
