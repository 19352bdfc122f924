#pragma once
/* Keeps the part of a step's prompt tokens that is not used yet. A row with logits (a prompt's
 * last row, and each row of a prompt with prompt_logprobs) uses as many tokens as it costs
 * (step_budget.h). The file is private to scheduler/. */
#include <stdbool.h>
#include <stdint.h>

struct row_shares;
struct scheduler;
struct seq;

struct prompt_budget {
    /* `any` and `resumed` are times in tokens: `any` for every prompt, `resumed` only for
     * resumed prompts. */
    uint32_t any, resumed;
    uint32_t rows;             /* rows left in the plan */
    double sampled;            /* tokens that a row with logits costs more than another row */
    struct row_shares *shares; /* splits `any` by tenant; NULL = not split */
};

/* Returns the budget beside n_decodes of n_each rows. When shares hold some decodes back, only
 * the other decodes count. */
struct prompt_budget prompt_budget_begin(const struct scheduler *s, uint32_t n_decodes,
                                         uint32_t n_each);
/* Splits the time by tenant (row_shares.h). Call before the first running prompt. */
void prompt_budget_share(struct prompt_budget *b, struct scheduler *s);
/* Returns true when nothing is left for x. */
bool prompt_budget_is_spent(const struct prompt_budget *b, const struct seq *x);
/* Returns how many of x's n_left tokens from `start` fit: at least one if anything is left. */
uint32_t prompt_budget_chunk(const struct prompt_budget *b, const struct scheduler *s,
                             const struct seq *x, uint32_t start, uint32_t n_left);
/* Takes n tokens of x from `start` off the budget. With `is_last`, the run ends the prompt, and
 * its last row is sampled. */
void prompt_budget_take(struct prompt_budget *b, const struct seq *x, uint32_t start, uint32_t n,
                        bool is_last);
/* Returns how many of a prompt's n_left tokens may run in a step with room for `budget`. */
uint32_t scheduler_chunk(const struct scheduler *s, uint32_t n_left, uint32_t budget);
