#pragma once
/* Keeps the part of a step's prompt tokens that is not used yet. A row with logits is a prompt's
 * last row, or any row of a prompt with prompt_logprobs. It uses as many tokens as it costs
 * (step_budget.h). The file is private to scheduler/. */
#include <stdbool.h>
#include <stdint.h>

struct row_shares;
struct scheduler;
struct seq;

struct prompt_budget {
    /* `any` and `resumed` are remaining times, in tokens: `any` for every prompt, `resumed` only
     * for resumed prompts. */
    uint32_t any, resumed;
    uint32_t rows;             /* rows left in the plan */
    double sampled;            /* additional cost of a row with logits, in tokens */
    struct row_shares *shares; /* splits `any` by tenant; NULL = not split */
};

/* Returns the budget of a step that also runs n_decodes decodes of n_each rows. When `shares`
 * holds some decodes back, only the other decodes count. */
struct prompt_budget prompt_budget_begin(const struct scheduler *s, uint32_t n_decodes,
                                         uint32_t n_each);
/* Splits the time by tenant (row_shares.h). Call before the first running prompt. */
void prompt_budget_share(struct prompt_budget *b, struct scheduler *s);
/* Returns true when no budget is left for `x`. */
bool prompt_budget_is_spent(const struct prompt_budget *b, const struct seq *x);
/* Returns how many of x's n_left tokens from `start` fit into the budget: at least one if any
 * budget is left. */
uint32_t prompt_budget_chunk(const struct prompt_budget *b, const struct scheduler *s,
                             const struct seq *x, uint32_t start, uint32_t n_left);
/* Subtracts n tokens of `x` from `start` from the budget. With `is_last`, the run ends the
 * prompt, and its last row is sampled. */
void prompt_budget_take(struct prompt_budget *b, const struct seq *x, uint32_t start, uint32_t n,
                        bool is_last);
/* Returns how many of a prompt's n_left tokens may run in a step that has `budget` tokens left. */
uint32_t scheduler_chunk(const struct scheduler *s, uint32_t n_left, uint32_t budget);
