#include "head/scheduler/prompt_budget.h"

#include "head/scheduler/state.h"

struct prompt_budget prompt_budget_begin(const struct scheduler *s, uint32_t n_decodes,
                                         uint32_t n_each)
{
    uint32_t n_sampled = (s->rows.n_rows < n_decodes ? s->rows.n_rows : n_decodes) * n_each;
    uint32_t any = step_budget_prompt_tokens_within(&s->budget, n_sampled, s->rows.longest_ns);
    uint32_t all = step_budget_resumed_tokens(&s->budget, n_sampled);
    return (struct prompt_budget){.any = any,
                                  .resumed = all > any ? all - any : 0,
                                  .rows = s->c.max_num_batched_tokens - n_decodes * n_each,
                                  .sampled = step_budget_tokens_of_sampled(&s->budget)};
}

void prompt_budget_share(struct prompt_budget *b, struct scheduler *s)
{
    if (s->rows.n_tenants < 2 || b->any == UINT32_MAX || s->n_prompts == 0)
        return;
    for (uint32_t i = 0; i < s->running_end; i++) {
        const struct seq *x = s->running[i];
        if (!x || !x->is_prompt)
            continue;
        uint32_t n = seq_n_ready(x),
                 n_prompt_logprobs = seq_n_prompt_logprobs_of(x, x->n_scheduled, n);
        row_shares_want_time(&s->rows, x->i_row_share,
                             n + (uint64_t)((n_prompt_logprobs + 1) * b->sampled));
    }
    row_shares_split_time(&s->rows, b->any, s->waiting.n > 0 && s->n_free_slots > 0);
    b->shares = &s->rows;
}

uint32_t scheduler_chunk(const struct scheduler *s, uint32_t n_ready, uint32_t budget)
{
    uint32_t n = n_ready < budget ? n_ready : budget;
    uint32_t threshold = s->c.long_prefill_token_threshold;
    return threshold && n > threshold ? threshold : n;
}

/* Returns the remaining time for `x`, in tokens. A running prompt takes at most its tenant's
 * part. */
static uint32_t time_of(const struct prompt_budget *b, const struct seq *x)
{
    uint32_t any = b->any;
    if (b->shares && x->is_prompt) {
        uint32_t left = row_shares_time_left(b->shares, x->i_row_share);
        any = any < left ? any : left;
    }
    return any + (x->resumed ? b->resumed : 0);
}

bool prompt_budget_is_spent(const struct prompt_budget *b, const struct seq *x)
{
    return b->rows == 0 || time_of(b, x) == 0;
}

uint32_t prompt_budget_chunk(const struct prompt_budget *b, const struct scheduler *s,
                             const struct seq *x, uint32_t start, uint32_t n_left)
{
    uint32_t n = time_of(b, x), n_prompt_logprobs = seq_n_prompt_logprobs_of(x, start, n_left);
    if (n > 0 && n_prompt_logprobs > 0) {
        double fit = n / (1 + b->sampled);
        fit = fit > n_prompt_logprobs ? n - n_prompt_logprobs * b->sampled : fit;
        n = fit > 1 ? (uint32_t)fit : 1;
    }
    return scheduler_chunk(s, n_left, n < b->rows ? n : b->rows);
}

void prompt_budget_take(struct prompt_budget *b, const struct seq *x, uint32_t start, uint32_t n,
                        bool is_last)
{
    uint32_t own = 0, n_prompt_logprobs = seq_n_prompt_logprobs_of(x, start, n);
    b->rows -= n;
    n += (uint32_t)((n_prompt_logprobs + (is_last && n_prompt_logprobs < n)) * b->sampled);
    if (x->resumed)
        own = b->resumed < n ? b->resumed : n;
    b->resumed -= own;
    n -= own;
    b->any -= b->any < n ? b->any : n;
    if (b->shares && x->is_prompt)
        row_shares_take_time(b->shares, x->i_row_share, n);
}
