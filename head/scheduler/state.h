#pragma once
/* The scheduler's own structs, for the files of scheduler.h only. From the bottom to the top:
 *   sequences.c  where a sequence is: the lists, slots and blocks that it has and loses
 *   reserve.c    blocks that go to another replica or come from there
 *   plan.c       a run in the plan that is being made
 *   admit.c      the next plan: who comes in
 *   step.c       the next plan: who runs
 *   result.c     a result: tokens, ends
 *   lifecycle.c  a scheduler's life: add, remove, reset; what others ask
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
    struct seq *seq;   /* NULL: left; its token is discarded */
    struct request *r; /* to be prefetched only: it may be gone */
    uint32_t slot, n_tokens, incarnation;
    uint16_t n_draft;
    bool sample, follows, pools;       /* pools: and a vector is asked for */
    bool has_prompt_logprobs;          /* and rows of the prompt, */
    uint32_t start;                    /* from here on */
    uint32_t n_prompt_logprobs;        /* so many rows have logits, beside the sample's */
    uint32_t i_mask_share, mask_units; /* or NONE: no mask; what it was expected to cost */
};

struct step_record {
    uint64_t step;
    uint32_t n;
    struct step_entry *entries; /* [max_num_seqs], in the order of the plan's runs */
};

/* Arrays of the plan being built; allocated once. */
struct plan_space {
    uint32_t *finished;
    struct plan_admit *admits;
    struct plan_run *runs, *prefills; /* decodes go first in runs; prefills follow them */
    struct step_entry *prefill_entries;
    struct plan_blocks *blocks; /* [max_num_seqs, n_kv_groups] */
    uint32_t n_finished, n_admits, n_runs, n_prefills, n_blocks;
    struct msg_plan plan;
};

/* The first that waits did not fit when so many blocks were free: looked at when there are more. */
struct stuck {
    const struct seq *seq;
    uint64_t n_free;
    uint32_t patience;
};

struct scheduler {
    struct scheduler_config c;
    uint64_t term_epoch, step_sent, step_done;
    uint64_t n_added, next_deadline_ns, n_prompt_tokens_left; /* the last: sum of n_left */
    struct seq *first, *last;                                 /* all */
    struct seq *ended, *last_ended;
    struct slab seq_slab;
    uint32_t n_seqs;
    struct seq **running; /* in order of seq_before; NULL: left since the last step */
    uint32_t n_running, running_end, n_prompts; /* prompts: those of them that are is_prompt */
    struct seq_queue waiting;
    struct seq **slots; /* [max_num_seqs] */
    uint32_t *free_slots, n_free_slots;
    uint32_t *left_slots, n_left_slots;              /* to be named in the next plan's finished */
    struct step_record records[SCHEDULER_MAX_DEPTH]; /* by step % depth */
    uint32_t n_ahead;                                /* entries in flight that have drafts */
    struct scheduler_event *events;                  /* of the last result */
    uint32_t n_events;
    struct seq **entering; /* [max_num_seqs]: have a full block to enter after this result */
    uint32_t n_entering;
    struct plan_space p;
    struct blocks *blocks;
    struct blocks_hit hit; /* of the one that is being looked at */
    struct stuck stuck;
    struct scheduler_move *moves;
    uint32_t n_moves;
    struct scheduler_stats stats;
    uint64_t accepted_at[SCHEDULER_MAX_DRAFT]; /* beside stats, which are copied in each turn */
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
