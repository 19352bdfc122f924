#pragma once
/* Defines the structs of the scheduler, only for the files that implement scheduler.h. From the
 * lowest layer to the highest:
 *   sequences.c  places of a sequence: its lists, slots and blocks
 *   reserve.c    blocks that move to or from another replica
 *   plan.c       a run in the plan in progress
 *   admit.c      the next plan: admission of waiting sequences
 *   step.c       the next plan: running sequences
 *   result.c     results: tokens, ends
 *   lifecycle.c  create, add, remove, reset; queries
 *   check.c      every invariant */
#include "common/collections/slab.h"
#include "head/budget/mask_shares.h"
#include "head/budget/row_shares.h"
#include "head/budget/step_budget.h"
#include "head/kv/blocks.h"
#include "head/scheduler/queue.h"
#include "head/scheduler/scheduler.h"
#include "proto/limits.h"

_Static_assert(SCHEDULER_MAX_KV_GROUPS == BLOCKS_MAX_GROUPS, "the same groups");

struct step_entry {
    /* sequence of the entry; NULL = the sequence has left, and its token is discarded */
    struct seq *seq;
    struct request *r; /* used only for prefetching; the request may have left */
    uint32_t slot, n_tokens, incarnation;
    uint16_t n_draft;
    bool sample, follows, pools; /* pools: the result has a vector too */
    bool has_prompt_logprobs;    /* the result has rows of the prompt too */
    bool has_usage;              /* as in the sequence */
    uint32_t start;              /* first position of the run */
    uint32_t n_prompt_logprobs;  /* rows with logits beside the sampled row */
    /* i_mask_share: NONE = no mask; mask_units: expected cost of the mask */
    uint32_t i_mask_share, mask_units;
    uint32_t usage_row; /* tenant that is charged for the run's time, also when `seq` is NULL */
};

struct step_record {
    uint64_t step;
    uint64_t sent_ns;  /* time of the call that made the plan */
    uint64_t n_tokens; /* tokens of all runs, with draft tokens */
    uint32_t n;
    struct step_entry *entries; /* array of max_num_seqs entries, in the order of the plan's runs */
};

/* Holds the arrays of the plan in progress, allocated once. */
struct plan_space {
    uint32_t *finished;
    struct plan_admit *admits;
    /* runs: decodes, then prefills, which are appended at the end */
    struct plan_run *runs, *prefills;
    struct step_entry *prefill_entries;
    struct plan_blocks *blocks; /* array of max_num_seqs * n_kv_groups */
    uint32_t n_finished, n_admits, n_runs, n_prefills, n_blocks;
    uint64_t n_tokens; /* tokens of all runs, with draft tokens */
    struct msg_plan plan;
};

/* Records that the first waiting sequence did not fit with n_free free blocks. The scheduler
 * tries the sequence again when there are more free blocks. */
struct stuck {
    const struct seq *seq;
    uint64_t n_free;
    uint32_t patience;
};

struct scheduler {
    struct scheduler_config c;
    uint64_t term_epoch, step_sent, step_done;
    /* n_prompt_tokens_left: sum of n_left */
    uint64_t n_added, next_deadline_ns, n_prompt_tokens_left;
    struct seq *first, *last; /* list of all sequences */
    struct seq *ended, *last_ended;
    struct slab seq_slab;
    uint32_t n_seqs;
    /* running sequences in order of seq_before; NULL = left since the last step */
    struct seq **running;
    uint32_t n_running, running_end, n_prompts; /* n_prompts: running sequences with is_prompt */
    struct seq_queue waiting;
    struct seq **slots; /* array of max_num_seqs: the running sequence of each slot; NULL = free */
    uint32_t *free_slots, n_free_slots;
    uint32_t *left_slots, n_left_slots; /* slots to report as finished in the next plan */
    struct step_record records[SCHEDULER_MAX_DEPTH]; /* steps in flight, by step % depth */
    uint32_t n_ahead;                                /* entries in flight with drafts */
    struct scheduler_event *events;                  /* events of the last result */
    uint32_t n_events;
    /* `entering` has max_num_seqs places, for sequences that have a full block for the cache
     * after this result. */
    struct seq **entering;
    uint32_t n_entering;
    struct plan_space p;
    struct blocks *blocks;
    struct blocks_hit hit; /* hit of the sequence that is being admitted */
    struct stuck stuck;
    struct scheduler_move *moves;
    uint32_t n_moves;
    struct scheduler_stats stats;
    /* accepted draft tokens by position; kept outside `stats`, which are copied in each turn */
    uint64_t accepted_at[SCHEDULER_MAX_DRAFT];
    struct step_budget budget;
    struct row_shares rows;
    struct mask_shares masks;
};

static inline uint32_t scheduler_in_flight(const struct scheduler *s)
{
    return (uint32_t)(s->step_sent - s->step_done);
}
static inline struct step_record *scheduler_record(const struct scheduler *s, uint64_t step)
{
    return (struct step_record *)&s->records[step % s->c.depth];
}
