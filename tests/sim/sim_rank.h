#pragma once
/* Simulates a rank. It keeps sequences by slot, checks every plan without trusting the
 * scheduler, and runs it with the null worker's token rule. It shares no code with the
 * scheduler. Each position of its KV memory holds a hash of the tokens up to it. A run checks
 * every position that it would attend to at the moment it runs. The check thus finds at once a
 * block that was reused too early, shared wrongly, copied before it was written, or found
 * wrongly in the prefix cache. draft_percent sets how often draft tokens are accepted (a
 * function of the ids, so that all ranks draft alike). Rejected draft tokens leave wrong KV
 * behind. A violation sets `err`, and the rank is dead. */
#include <stdbool.h>
#include <stdint.h>

#include "proto/messages.h"
#include "proto/null_tokens.h"

#define SIM_RANK_MAX_DRAFT 16u

struct sim_rank_config {
    uint32_t max_num_seqs, max_num_batched_tokens, max_model_len, vocab_size;
    const struct kv_group *kv_groups;
    uint32_t n_kv_groups;
    uint32_t n_draft, draft_max_seqs; /* limits of the scheduler's grants (scheduler.h) */
    uint32_t draft_percent;           /* chance that a draft token is accepted */
    /* true: drafts all granted tokens, like a draft model; false: only some, like a lookup */
    bool drafts_all;
};

struct sim_rank;
struct sim_rank *sim_rank_new(const struct sim_rank_config *c);
void sim_rank_free(struct sim_rank *rank);
/* Starts a new epoch: sequences are dropped, steps start from 1, and the KV memory is lost. */
void sim_rank_reset(struct sim_rank *rank, uint64_t term_epoch);
/* Runs the plan at once. *out is the result to deliver; its memory belongs to the rank and lives
 * until two more plans have been executed. step_done is the last step whose result the head has. */
bool sim_rank_execute(struct sim_rank *rank, const struct msg_plan *plan, uint64_t step_done,
                      struct msg_result *out, struct error *err);
/* Returns how many of n draft tokens are accepted, for a rank that drafts all. `before` is the
 * hash of the ids up to the draft tokens. */
uint32_t sim_rank_n_kept(const struct null_hash *before, uint32_t n, uint32_t draft_percent);
/* Returns the value of the prompt_logprobs row for the last of n ids. */
float sim_rank_prompt_logprobs(const uint32_t *ids, uint32_t n, uint32_t n_adapter_bytes);
uint32_t sim_rank_n_active(const struct sim_rank *rank);
/* Handles a block of a move: checks that the block holds the index-th block of ids, or writes
 * that content. */
bool sim_rank_moved(struct sim_rank *rank, uint32_t i_group, uint32_t block, uint32_t index,
                    const uint32_t *ids, uint32_t n_adapter_bytes, bool write);
/* Copies block `a` of one rank's KV memory to block `b` of another rank's. If `from` is NULL,
 * random values are written. */
void sim_rank_copy_block(const struct sim_rank *from, struct sim_rank *to, uint32_t i_group,
                         uint32_t a, uint32_t b);
