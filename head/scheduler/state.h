#pragma once
/* The scheduler's own structs, for scheduler*.c only.
 *   scheduler.c         life: add, remove, reset, who is where
 *   scheduler_step.c    the next plan: who runs
 *   scheduler_admit.c   the next plan: who comes in
 *   scheduler_result.c  a result: tokens, ends
 *   scheduler_move.c    blocks that go to another group or come from there
 *   scheduler_check.c   every invariant
 * Positions of a sequence: [0, n_scheduled) are planned; [n_scheduled, n_total) can be run next,
 * where n_total = known ids + n_pending drawn in flight. While drafts of it are in flight the ranks
 * may be up to n_ahead further than these say. */
#include "common/collections/slab.h"
#include "head/kv/blocks.h"
#include "head/scheduler/mask_shares.h"
#include "head/scheduler/prompt_budget.h"
#include "head/scheduler/queue.h"
#include "head/scheduler/row_shares.h"
#include "head/scheduler/scheduler.h"
#include "head/scheduler/step_budget.h"
#include "proto/limits.h"

#define SCHEDULER_MAX_DEPTH 2u
_Static_assert(SCHEDULER_MAX_KV_GROUPS == BLOCKS_MAX_GROUPS, "the same groups");
_Static_assert(SCHEDULER_MAX_DEPTH <= BLOCK_POOL_MAX_DEPTH, "quarantine counts per step");
#define SLOT_NONE  UINT32_MAX
#define ENTRY_NONE UINT32_MAX

enum seq_place { SEQ_WAITING, SEQ_RUNNING, SEQ_ENDED };

struct seq {
    /* A step of plain decoding touches this cache line of the sequence, and no other. */
    struct request *r;
    uint32_t n_scheduled, n_total;
    uint32_t n_cap;    /* r->ids_cap: the token at n_cap - 1 is never run, nothing follows it */
    uint32_t covered;  /* positions that have blocks */
    uint32_t enter_at; /* known and planned positions at which a block can be shared again */
    uint32_t slot;
    uint32_t incarnation; /* counts admissions: an entry of an older one gives tokens only */
    uint32_t i_running;
    uint32_t entry[SCHEDULER_MAX_DEPTH]; /* where it stands in the steps in flight */
    uint16_t n_ahead;
    uint8_t n_pending;
    uint8_t place;
    bool is_prompt;     /* it runs, and more than its newest id is left to be planned */
    bool tail_shared;   /* or not to be: blocks_enter_tail has been called */
    bool counts_hits;   /* admitted for the first time in its life */
    bool pools, scores; /* its prompt's vector is wanted, not a token; log-probabilities of it */
    bool masked;        /* it has a grammar */
    uint16_t i_row_share;
    uint32_t n_untold; /* positions that advance skipped and no plan has said yet */

    /* The order of service, as it was at scheduler_add: the request's owner may change its copy
     * while it stands in a sorted list. */
    int32_t priority;
    bool resubmitted;
    bool again;   /* resubmitted, or was preempted */
    bool resumed; /* it came with generated ids: a loss, or a move, made its stream stand still */
    uint64_t arrival_seq;
    uint64_t add_seq; /* order of scheduler_add: breaks ties of arrival */
    uint32_t n_left;  /* tokens of its prompt that are still to be computed: load */
    uint64_t tenant;
    uint32_t i_tenant;                             /* of the queue */
    uint32_t i_mask_share, mask_round, mask_units; /* the last: of its last run */
    bool had_mask, asks_scores; /* the latter: its prompt's rows have logits, by scheduler_add */
    struct seq_heap_node wait;
    struct seq *next, *prev; /* of all in the scheduler, in order of add */
    struct seq *next_ended;
    _Alignas(64) struct block_table tables[]; /* one a line */
};
_Static_assert(offsetof(struct seq, priority) <= 64, "one cache line");

struct step_entry {
    struct seq *seq;   /* NULL: left; its token is discarded */
    struct request *r; /* to be prefetched only: it may be gone */
    uint32_t slot, n_tokens, incarnation;
    uint16_t n_draft;
    bool sample, follows, pools;       /* pools: and a vector is asked for */
    bool scores;                       /* and rows of the prompt, */
    uint32_t start;                    /* from here on */
    uint32_t n_scored;                 /* so many rows have logits, beside the sample's */
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

/* Who waits did not fit when so many blocks were free: looked at when there are more. */
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

/* Positions that can be run now. */
static inline uint32_t seq_n_ready(const struct seq *x)
{
    return x->n_total < x->n_cap ? x->n_total - x->n_scheduled : 0;
}
/* Positions that are planned and have known ids. */
static inline uint32_t seq_n_known(const struct seq *x)
{
    return x->n_scheduled < x->r->n_ids ? x->n_scheduled : x->r->n_ids;
}
static inline uint32_t scheduler_in_flight(const struct scheduler *s)
{
    return (uint32_t)(s->step_sent - s->step_done);
}
static inline struct step_record *scheduler_record(const struct scheduler *s, uint64_t step)
{
    return (struct step_record *)&s->records[step % s->c.depth];
}

/* Rows with logits of a run of n positions from start, beside a last one that is drawn from. */
static inline uint32_t seq_n_scored_by(const struct seq *x, uint32_t start, uint32_t n)
{
    uint32_t last = x->r->n_prompt - 1, left = x->asks_scores && start < last ? last - start : 0;
    return n < left ? n : left;
}

/* scheduler.c */
void running_insert(struct scheduler *s, struct seq *x);
MUST_USE bool seq_make_room(struct scheduler *s, struct seq *x); /* to run; false: no memory */
/* Running → waiting; its blocks are released, tokens in flight will still be accepted. */
void scheduler_preempt(struct scheduler *s, struct seq *x);
/* The last in order of service; NULL: none. */
struct seq *running_last(struct scheduler *s);
/* Ends it where it is: ours until it is popped. */
void scheduler_end(struct scheduler *s, struct seq *x, enum finish_reason why);
void scheduler_drop(struct scheduler *s, struct seq *x); /* out of everything, and freed */
/* After n_scheduled or n_total moved: does it still compute its prompt, and how much of it? */
void seq_set_prompt(struct scheduler *s, struct seq *x, bool is_prompt);

/* scheduler_step.c */
struct run_size {
    uint32_t n_tokens, n_draft;
};
/* x runs in this step; blocks_fit, or fit_admit, said yes. prompt: it has to stand behind the
 * prompts planned before it. */
void scheduler_add_run(struct scheduler *s, struct seq *x, struct run_size size, bool prompt);

/* scheduler_admit.c: places are taken from running sequences of worse classes for those that wait;
 * what r's admission with so many ids weighs in a plan, on the wire, at most. */
void scheduler_make_way(struct scheduler *s);
uint64_t scheduler_admit_bytes(const struct scheduler *s, const struct request *r, uint32_t n_ids);
void scheduler_admit(struct scheduler *s, struct prompt_budget budget, uint64_t now_ns);

/* scheduler_move.c */
void moves_of_gone(struct scheduler *s, const struct request *r); /* gone, or come in */
/* The oldest import that is whole is let go. False: there is none. */
bool moves_reclaim(struct scheduler *s);
void moves_forget(struct scheduler *s); /* the blocks are all free, or gone */
void moves_count_owners(const struct scheduler *s, uint32_t i_group, uint32_t *owners);
