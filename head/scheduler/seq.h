#pragma once
/* One sequence of a scheduler: a request while it waits or runs there. Plain data, and what can be
 * said of it alone. Positions of a sequence: [0, n_scheduled) are planned; [n_scheduled, n_total)
 * can be run next, where n_total = known ids + n_pending sampled in flight. While drafts of it are
 * in flight the ranks may be up to n_ahead further than these say. */
#include "head/kv/blocks.h"
#include "head/request/state.h"

#define SCHEDULER_MAX_DEPTH 2u
_Static_assert(SCHEDULER_MAX_DEPTH <= BLOCK_POOL_MAX_DEPTH, "quarantine counts per step");
#define SLOT_NONE  UINT32_MAX
#define ENTRY_NONE UINT32_MAX

/* Links of a sequence in the pairing heap of those that wait with it (Fredman, Sedgewick, Sleator,
 * Tarjan 1986): intrusive, so that pushing allocates nothing. */
struct seq_heap_node {
    struct seq *child, *next, *prev; /* prev: the elder sibling, or of the eldest the parent */
};

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
    bool is_prompt;   /* it runs, and more than its newest id is left to be planned */
    bool tail_shared; /* or not to be: blocks_enter_tail has been called */
    bool counts_hits; /* admitted for the first time in its life */
    bool pools, has_prompt_logprobs; /* its prompt's vector is wanted, not a token;
                                        log-probabilities of it */
    bool masked;                     /* it has a grammar */
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
    bool had_mask,
        asks_prompt_logprobs; /* the latter: its prompt's rows have logits, by scheduler_add */
    struct seq_heap_node wait;
    struct seq *next, *prev; /* of all in the scheduler, in order of add */
    struct seq *next_ended;
    _Alignas(64) struct block_table tables[]; /* one a line */
};
_Static_assert(offsetof(struct seq, priority) <= 64, "one cache line");

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
/* Rows with logits of a run of n positions from start, beside a last one that is sampled from. */
static inline uint32_t seq_n_prompt_logprobs_of(const struct seq *x, uint32_t start, uint32_t n)
{
    uint32_t last = x->r->n_prompt - 1,
             left = x->asks_prompt_logprobs && start < last ? last - start : 0;
    return n < left ? n : left;
}
