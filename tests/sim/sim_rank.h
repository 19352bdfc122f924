#pragma once
/* A simulated rank: keeps sequences by slot, checks every plan as a hostile reader would, and runs
 * it with the null worker's token rule. It shares no code with the scheduler. Its KV memory is real
 * in one respect: each position holds a hash of the tokens up to it, and a run checks every
 * position it would attend to at the moment it runs, so that a block that was reused too early,
 * shared wrongly, copied before it was written, or found wrongly in the prefix cache is seen at
 * once. Draft tokens are right as often as draft_percent says (a function of the ids, so that all
 * ranks draft alike); wrong ones leave wrong KV behind. A violation fills err and the rank is dead.
 */
#include <stdbool.h>
#include <stdint.h>

#include "proto/messages.h"
#include "proto/null_tokens.h"

#define SIM_RANK_MAX_DRAFT 16u

struct sim_rank_config {
    uint32_t max_num_seqs, max_num_batched_tokens, max_model_len, vocab_size;
    const struct kv_group *kv_groups;
    uint32_t n_kv_groups;
    uint32_t n_draft, draft_max_seqs; /* what the scheduler may grant (scheduler.h) */
    uint32_t draft_percent;           /* how often a draft token is right */
    bool drafts_all; /* that it is granted, as a draft model does; else some, as a lookup does */
};

struct sim_rank;
struct sim_rank *sim_rank_new(const struct sim_rank_config *c);
void sim_rank_free(struct sim_rank *rank);
/* A new epoch: sequences dropped, steps from 1; what the KV memory holds is lost too. */
void sim_rank_reset(struct sim_rank *rank, uint64_t term_epoch);
/* Runs the plan at once. *out is the result to deliver; its memory belongs to the rank and lives
 * until two more plans have been executed. step_done: the last step whose result the head has. */
bool sim_rank_execute(struct sim_rank *rank, const struct msg_plan *plan, uint64_t step_done,
                      struct msg_result *out, struct error *err);
/* Of n draft tokens of a rank that drafts all, how many are kept; before: of the ids up to them. */
uint32_t sim_rank_n_kept(const struct null_hash *before, uint32_t n, uint32_t draft_percent);
/* The value of the row that a prompt's last of n ids gets. */
float sim_rank_prompt_logprobs(const uint32_t *ids, uint32_t n, uint32_t n_adapter_bytes);
uint32_t sim_rank_n_active(const struct sim_rank *rank);
/* A block from or to another replica's rank: it holds the index-th block of ids, or is made to. */
bool sim_rank_moved(struct sim_rank *rank, uint32_t i_group, uint32_t block, uint32_t index,
                    const uint32_t *ids, uint32_t n_adapter_bytes, bool write);
/* Block `a` of one rank's KV memory goes to block `b` of another's; from NULL: something else does.
 */
void sim_rank_copy_block(const struct sim_rank *from, struct sim_rank *to, uint32_t i_group,
                         uint32_t a, uint32_t b);
