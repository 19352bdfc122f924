#pragma once
/* Describes one sequence of a scheduler: a request while it waits or runs there. The functions
 * use only the sequence. Positions [0, n_scheduled) are planned; [n_scheduled, n_total) can be
 * run next, where n_total = known ids + n_pending ids sampled in flight. While draft tokens are
 * in flight, ranks may be up to n_ahead positions further. */
#include "head/kv/blocks.h"
#include "head/request/state.h"

#define SCHEDULER_MAX_DEPTH 2u
_Static_assert(SCHEDULER_MAX_DEPTH <= BLOCK_POOL_MAX_DEPTH, "quarantine counts per step");
#define SLOT_NONE  UINT32_MAX
#define ENTRY_NONE UINT32_MAX

/* Holds the links of a node in the pairing heap of waiting sequences (Fredman, Sedgewick,
 * Sleator, Tarjan 1986). The links are part of the sequence, so that a push allocates nothing. */
struct seq_heap_node {
    struct seq *child, *next, *prev; /* prev: the older sibling; for the eldest child, the parent */
};

enum seq_place { SEQ_WAITING, SEQ_RUNNING, SEQ_ENDED };

struct seq {
    /* A step of plain decoding uses only the fields of this cache line. */
    struct request *r;
    uint32_t n_scheduled, n_total;
    /* copy of r->ids_cap; the token at n_cap - 1 is never run, since nothing follows it */
    uint32_t n_cap;
    uint32_t covered; /* positions that have blocks */
    /* count of known and planned positions at which the next block can be shared */
    uint32_t enter_at;
    uint32_t slot;
    /* number of admissions; step entries of an older admission only yield tokens */
    uint32_t incarnation;
    uint32_t i_running;
    uint32_t entry[SCHEDULER_MAX_DEPTH]; /* index of the sequence's entry in each step in flight */
    uint16_t n_ahead;
    uint8_t n_pending;
    uint8_t place;
    bool is_prompt;   /* the sequence runs, and more than its newest id is left to be planned */
    bool tail_shared; /* blocks_enter_tail was called */
    bool counts_hits; /* the sequence was admitted for the first time, so its cache hits count */
    /* pools: the answer is a vector instead of tokens; has_prompt_logprobs: the ranks return the
     * rows of the prompt */
    bool pools : 1, has_prompt_logprobs : 1;
    bool has_usage; /* the request's own usage is needed in each step (usage_is_needed) */
    bool masked;    /* the sequence has a grammar */
    uint16_t i_row_share;
    uint32_t usage_row; /* copy of r->usage.row */

    /* The order of service is copied at scheduler_add, because the owner may change the request
     * while the sequence is in a sorted list. */
    int32_t priority;
    bool resubmitted;
    bool again; /* the request was resubmitted or preempted */
    /* the request already had generated ids when it was added: a loss or a move interrupted its
     * stream */
    bool resumed;
    uint64_t arrival_seq;
    uint64_t add_seq;          /* order of scheduler_add; decides between equal arrivals */
    uint32_t n_left;           /* prompt tokens that are still to be computed; they count as load */
    uint32_t n_waiting_tokens; /* n_left as the queue counts it while the sequence waits */
    uint32_t n_untold; /* positions skipped by blocks_advance that no plan has reported yet */
    uint64_t tenant;
    uint32_t i_tenant; /* index into the queue's tenants */
    /* mask_units: cost of the mask of its last run */
    uint32_t i_mask_share, mask_round, mask_units;
    /* asks_prompt_logprobs: the rows of the prompt have logits, decided at scheduler_add */
    bool had_mask, asks_prompt_logprobs;
    struct seq_heap_node wait;
    struct seq *next, *prev; /* links of the list of all sequences, in order of scheduler_add */
    struct seq *next_ended;
    /* one table for each KV group, each in a cache line of its own */
    _Alignas(64) struct block_table tables[];
};
_Static_assert(offsetof(struct seq, priority) <= 64, "one cache line");

/* Returns the number of positions that can be run now. */
static inline uint32_t seq_n_ready(const struct seq *x)
{
    return x->n_total < x->n_cap ? x->n_total - x->n_scheduled : 0;
}
/* Returns the number of blocks that the sequence holds in all KV groups. */
static inline uint32_t seq_n_blocks(const struct seq *x, uint32_t n_kv_groups)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_kv_groups; i++)
        n += x->tables[i].n - x->tables[i].first;
    return n;
}
/* Returns the number of planned positions that have known ids. */
static inline uint32_t seq_n_known(const struct seq *x)
{
    return x->n_scheduled < x->r->n_ids ? x->n_scheduled : x->r->n_ids;
}
/* Returns the number of rows with logits in a run of n positions from `start`, without a sampled
 * last row. */
static inline uint32_t seq_n_prompt_logprobs_of(const struct seq *x, uint32_t start, uint32_t n)
{
    uint32_t last = x->r->n_prompt - 1,
             left = x->asks_prompt_logprobs && start < last ? last - start : 0;
    return n < left ? n : left;
}
