#pragma once
/* The prompt tokens of one step that are not given out yet. A row with logits (a prompt's last one,
 * and each one of a prompt with prompt_logprobs) takes as many of them as it costs (step_budget.h).
 * Private to scheduler/. */
#include <stdbool.h>
#include <stdint.h>

struct row_shares;
struct scheduler;
struct seq;

struct prompt_budget {
    uint32_t any,
        resumed;    /* time in tokens: for any prompt, and so much for those that came back */
    uint32_t rows;  /* of the plan */
    double sampled; /* a row with logits takes so many tokens more than another one */
    struct row_shares *shares; /* of any, by tenant; NULL: not shared */
};

/* The budget of a step with n_decodes, of n_each rows each. Where shares hold some of them back
 * they are less, but never more than that. */
struct prompt_budget prompt_budget_begin(const struct scheduler *s, uint32_t n_decodes,
                                         uint32_t n_each);
/* Before the first running prompt: its time is shared by tenant (row_shares.h). */
void prompt_budget_share(struct prompt_budget *b, struct scheduler *s);
/* Nothing is left for x. */
bool prompt_budget_is_spent(const struct prompt_budget *b, const struct seq *x);
/* So many of x's n_left tokens from start on fit: one at least, if anything is left. */
uint32_t prompt_budget_chunk(const struct prompt_budget *b, const struct scheduler *s,
                             const struct seq *x, uint32_t start, uint32_t n_left);
/* n tokens of x run, from start on. is_last: to the end of its prompt, whose last row is sampled
 * from. */
void prompt_budget_take(struct prompt_budget *b, const struct seq *x, uint32_t start, uint32_t n,
                        bool is_last);
/* So many of n_left tokens of any prompt run in a step that has room for budget. */
uint32_t scheduler_chunk(const struct scheduler *s, uint32_t n_left, uint32_t budget);
