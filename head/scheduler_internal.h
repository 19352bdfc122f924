#pragma once
/* The scheduler's own structs, for scheduler*.c only.
 *   scheduler.c         life: add, remove, reset, who is where
 *   scheduler_kv.c      block tables of a sequence: prefix hits, allocation, windows, release
 *   scheduler_step.c    the next plan
 *   scheduler_result.c  a result: tokens, ends, what is computed now
 *   scheduler_check.c   every invariant
 * Positions of a sequence: [0, n_computed) results are in; [n_computed, n_scheduled) in flight;
 * [n_scheduled, n_total) can be run next, where n_total = known ids + n_pending drawn in flight. */
#include "head/block_pool.h"
#include "head/prefix_cache.h"
#include "head/scheduler.h"
#include "head/scheduler_queue.h"
#include "head/step_budget.h"

#define SCHEDULER_MAX_DEPTH 2u
#define SLOT_NONE           UINT32_MAX
#define ENTRY_NONE          UINT32_MAX

enum seq_place { SEQ_WAITING, SEQ_RUNNING, SEQ_ENDED };

struct kv_table {
    uint32_t *ids; /* by logical index; [first, n) are held */
    uint32_t first, n;
    uint32_t n_hashed;      /* blocks whose hash is in the chain: computed and full */
    struct block_hash hash; /* of block n_hashed - 1, or the root */
    uint64_t content;       /* its content in the prefix cache */
};

struct seq {
    struct request *r;
    enum seq_place place;
    uint32_t slot;
    uint32_t n_scheduled, n_computed, n_pending;
    uint32_t incarnation; /* counts admissions: an entry of an older one gives tokens only */
    uint32_t entry[SCHEDULER_MAX_DEPTH]; /* where it stands in the steps in flight */
    uint32_t i_queue;
    /* The order of service, as it was at scheduler_add: the request's owner may change its copy
     * while it stands in a sorted list. */
    int32_t priority;
    bool resubmitted;
    uint64_t arrival_seq;
    uint64_t add_seq;        /* order of scheduler_add: breaks ties of arrival */
    struct seq *next, *prev; /* running list in order of service, or ended list */
    struct kv_table tables[];
};

struct step_entry {
    struct seq *seq; /* NULL: left; its token is discarded */
    uint32_t slot, start, n_tokens, n_draft, incarnation;
    bool sample;
};

struct step_record {
    uint64_t step;
    uint32_t n;
    struct step_entry *entries; /* [max_num_seqs], in the order of the plan's runs */
};

struct seq_list {
    struct seq *head, *tail;
    uint32_t n;
};

struct kv_group_state {
    struct block_pool *pool;
    struct prefix_cache *cache; /* NULL: prefix caching is off */
    uint32_t block_tokens;
    uint32_t window;           /* 0: none */
    uint32_t max_held;         /* blocks one sequence can hold at once, window and largest chunk */
    uint32_t watermark;        /* kept free of new sequences, per step */
    uint32_t claimed;          /* this step: for older sequences that wait for the quarantine */
    uint32_t promised;         /* this step: prompts that are partly computed will need these */
    struct block_hash *hashes; /* scratch of a prefix lookup, by logical index */
    uint32_t *hit_blocks;
};

/* A prefix hit: tokens [0, n_tokens) of which group g holds blocks [first[g], n[g]). */
struct kv_hit {
    uint32_t n_tokens;
    uint32_t first[SCHEDULER_MAX_KV_GROUPS], n[SCHEDULER_MAX_KV_GROUPS];
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

struct scheduler {
    struct scheduler_config c;
    uint32_t hit_align; /* a hit ends on a block border of every group */
    uint64_t term_epoch, step_sent, step_done;
    uint64_t n_added, next_deadline_ns;
    uint64_t load_tokens;
    uint32_t n_seqs;
    struct seq_list running, ended;
    struct seq_queue waiting;
    struct seq **slots; /* [max_num_seqs] */
    uint32_t *free_slots, n_free_slots;
    uint32_t *left_slots, n_left_slots;              /* to be named in the next plan's finished */
    struct step_record records[SCHEDULER_MAX_DEPTH]; /* by step % depth */
    struct scheduler_event *events;
    struct plan_space p;
    struct kv_group_state groups[SCHEDULER_MAX_KV_GROUPS];
    struct scheduler_stats stats;
    struct step_budget budget;
};

static inline uint32_t seq_n_total(const struct seq *x)
{
    return x->r->n_ids + x->n_pending;
}
/* Positions that can be run now. The token at ids_cap - 1 is never run: nothing follows it. */
static inline uint32_t seq_n_ready(const struct seq *x)
{
    uint32_t n = seq_n_total(x);
    return n < x->r->ids_cap ? n - x->n_scheduled : 0;
}
static inline uint32_t blocks_for(uint32_t n_tokens, uint32_t block_tokens)
{
    return n_tokens / block_tokens + (n_tokens % block_tokens != 0);
}
static inline uint32_t scheduler_in_flight(const struct scheduler *s)
{
    return (uint32_t)(s->step_sent - s->step_done);
}
static inline struct step_record *scheduler_record(const struct scheduler *s, uint64_t step)
{
    return (struct step_record *)&s->records[step % s->c.depth];
}

/* scheduler.c */
void seq_list_insert(struct seq_list *l, struct seq *x); /* in order of seq_before */
/* Running → waiting; its blocks are released, tokens in flight will still be accepted. */
void scheduler_preempt(struct scheduler *s, struct seq *x);
/* Takes it out of its list, slot, blocks and the steps in flight; it still counts. */
void scheduler_detach(struct scheduler *s, struct seq *x);
void scheduler_drop(struct scheduler *s, struct seq *x); /* detaches and frees */

/* scheduler_kv.c */
MUST_USE enum status kv_open(struct scheduler *s, struct error *err);
void kv_close(struct scheduler *s);
/* Blocks that a sequence of this many positions needs at once, at most. */
uint32_t kv_blocks_at_once(const struct kv_group_state *g, uint32_t n_tokens);
void kv_find_hit(const struct scheduler *s, const struct request *r, struct kv_hit *out);
enum kv_fit {
    KV_FIT_YES,
    KV_FIT_WAIT, /* blocks in quarantine will do: claimed for it */
    KV_FIT_NO
};
/* Whether x can run its next n_tokens positions now. */
enum kv_fit kv_fit_run(struct scheduler *s, struct seq *x, uint32_t n_tokens);
/* Whether x can be admitted with this hit, leaving the others room to grow. */
bool kv_fit_admit(const struct scheduler *s, const struct seq *x, const struct kv_hit *hit);
void kv_take_hit(struct scheduler *s, struct seq *x, const struct kv_hit *hit);
/* Drops what left the window, allocates for the next n_tokens positions; fills the plan's blocks.
 */
void kv_extend(struct scheduler *s, struct seq *x, uint32_t n_tokens, bool admitted,
               struct plan_run *run);
/* n_computed moved: what is full now goes to the prefix cache. */
void kv_register(struct scheduler *s, struct seq *x);
void kv_release(struct scheduler *s, struct seq *x);
