#pragma once
/* Schedules one replica: continuous batching over the KV block table. The code does no I/O, has
 * no clock, and calls no malloc while stepping. It borrows requests from the request table. A
 * request is in at most one scheduler. Flow: scheduler_add → scheduler_step (returns a plan) → …
 * → scheduler_on_result (tokens, ends) → the request leaves. At most `depth` plans are in
 * flight. Blocks return to the free list when the results of all steps sent while they were
 * owned have arrived. */
#include "head/kv/block_part.h"
#include "head/request/request.h"
#include "proto/messages.h"

#define SCHEDULER_MAX_KV_GROUPS 8
#define SCHEDULER_MAX_DRAFT     16u

struct scheduler_config {
    uint32_t max_num_batched_tokens;       /* token budget of one step */
    uint32_t max_num_seqs;                 /* most sequences of one step */
    uint32_t max_waiting;                  /* most waiting sequences */
    uint32_t long_prefill_token_threshold; /* most tokens of one prompt per step; 0 = no limit */
    uint32_t max_partial_prefills; /* most prompts that are partly computed at once; 0 = no limit */
    uint32_t max_model_len;
    uint32_t depth;          /* most steps in flight, 1 or 2 */
    uint32_t n_draft;        /* draft tokens per sequence and step; 0 = none */
    uint32_t draft_max_seqs; /* steps with more sequences have no drafts; 0 = no limit */
    uint64_t step_target_ns; /* prompts are split so that a step takes about this long; 0 = off */
    struct usage *usage;     /* counts what tenants use; borrowed; NULL = nothing is counted */
    bool enable_prefix_caching;
    bool gives_prompt_logprobs; /* the ranks support prompt_logprobs */
    uint32_t n_kv_groups;
    struct kv_group kv_groups[SCHEDULER_MAX_KV_GROUPS]; /* n_blocks = minimum over the ranks */
};

struct scheduler_stats {
    uint32_t running, waiting, in_flight;
    uint32_t n_blocks, n_blocks_used;
    uint64_t n_preemptions, n_steps, n_prompt_tokens, n_generated_tokens;
    uint64_t prefix_hit_tokens, prefix_query_tokens;
    uint64_t n_evictions;     /* cached blocks that were allocated again */
    uint64_t n_copied_blocks; /* copies of a shared prompt's last block (copy-on-write) */
    /* The draft counters: runs with drafts; draft tokens run; draft tokens accepted. */
    uint64_t n_draft_steps, n_drafted, n_accepted;
};

/* Describes the effect of a result on a request, filled in by scheduler_on_result. The tokens
 * are already in r->ids. After `ended` the request has left the scheduler. */
struct scheduler_event {
    struct request *request;
    uint32_t n_new;
    bool ended;
    bool is_first; /* the first token since the request was admitted, and the request goes on */
};

#define SCHEDULER_SEQ_BYTES 1024u /* most bytes of a waiting request's sequence */

struct scheduler;
MUST_USE enum status scheduler_new(const struct scheduler_config *c, struct scheduler **out,
                                   struct error *err);
void scheduler_free(struct scheduler *s);

/* Returns true when the request could ever run here, alone. */
bool scheduler_fits(const struct scheduler *s, const struct request *r);
/* Adds a request to the waiting queue, which is ordered by priority class, then resubmitted and
 * preempted requests, then fair shares per tenant, then arrival (queue.h). Returns STATUS_LIMIT
 * when the queue is full. Returns STATUS_NO_MEMORY when the request can never fit into this
 * pool, even alone. */
MUST_USE enum status scheduler_add(struct scheduler *s, struct request *r);
/* Returns true when a request with a grammar may be added: the scheduler is empty, the request was
 * resubmitted, or its tenant may have another answer (mask_shares.h). The function never removes
 * added requests, and a replay need not call it. After false, call again when
 * scheduler_takes_more_masks has returned true, or the scheduler is empty. */
bool scheduler_takes_masks(struct scheduler *s, const struct request *r);
bool scheduler_takes_more_masks(struct scheduler *s);
/* Returns the largest ids_cap of a request that fits when it is alone. */
uint32_t scheduler_most_tokens(const struct scheduler *s);
/* Removes the request in any state. Its results in flight are discarded. */
void scheduler_remove(struct scheduler *s, struct request *r);
/* Returns the next plan, with term_epoch and step filled in. Returns NULL when nothing can run
 * or `depth` is reached. The scheduler owns the plan's spans; they are valid until the next
 * call. A plan must be sent and cannot be taken back. The function also ends requests whose
 * deadline has passed, so call it on a timer too. */
const struct msg_plan *scheduler_step(struct scheduler *s, uint64_t now_ns);
/* Returns a request that ended without a result: its deadline passed (FINISH_TIMEOUT), memory
 * was missing (FINISH_ERROR), or its resubmitted tokens already ended it. The request has left
 * the scheduler. Returns NULL when there is none. Call the function until NULL after
 * scheduler_add and scheduler_step. */
struct request *scheduler_pop_ended(struct scheduler *s);
/* Applies a result. *events is valid until the next call. Returns STATUS_PROTOCOL when the
 * result does not match the oldest plan in flight. The replica must then be dissolved. */
MUST_USE enum status scheduler_on_result(struct scheduler *s, const struct msg_result *r,
                                         uint64_t now_ns, const struct scheduler_event **events,
                                         uint32_t *n_events, struct error *err);
/* Begins a new epoch of the same ranks: drops sequences and blocks; steps restart at 1. Every
 * request is returned through `fn` in order of arrival. Running requests are PREEMPTED, and
 * those that scheduler_pop_ended had not returned are FINISHED. `fn` may add a request to a
 * scheduler, even to this one. */
typedef void scheduler_request_fn(void *ctx, struct request *r);
void scheduler_reset(struct scheduler *s, uint64_t term_epoch, scheduler_request_fn *fn, void *ctx);

/* ---- requests that move between replicas (reserve.c); `id`: number of a move, chosen by the
 * caller ---- */

/* Returns how many of r's first tokens are in full blocks here, in steps whose results have
 * arrived. */
uint32_t scheduler_movable(const struct scheduler *s, const struct request *r);
/* Holds the blocks of r's first n_tokens until scheduler_let_go, even if `r` ends. Returns
 * STATUS_NOT_FOUND when this scheduler lacks some of these blocks. */
MUST_USE enum status scheduler_hold(struct scheduler *s, const struct request *r, uint32_t n_tokens,
                                    uint64_t id);
/* Reserves blocks for the first n_tokens of `r`, which is in another scheduler and borrowed for
 * the call. No sequence gets these blocks. Returns STATUS_LIMIT when there are too few blocks. */
MUST_USE enum status scheduler_import(struct scheduler *s, const struct request *r,
                                      uint32_t n_tokens, uint64_t id);
/* Returns the blocks of a hold or an import, or NULL when there is none. */
const struct blocks_part *scheduler_parts(const struct scheduler *s, uint64_t id, uint32_t *n);
/* Marks an import as complete. Its blocks are then found like any cached prefix. They are kept
 * until the request is admitted or gone, the blocks are needed, or scheduler_let_go is called. */
void scheduler_imported(struct scheduler *s, uint64_t id);
/* Ends a hold or an import. An unknown id is ignored. */
void scheduler_let_go(struct scheduler *s, uint64_t id);
/* Stops running `r`, which is about to move. Returns true when no result of `r` is pending, so
 * that it can be removed without loss. */
bool scheduler_leave(struct scheduler *s, struct request *r);
/* Returns true when no result of `r` is pending any more. */
bool scheduler_may_leave(const struct request *r);
/* Returns the next running request in order of service. Start with *i = 0. Returns NULL at the
 * end. */
struct request *scheduler_next_running(const struct scheduler *s, uint32_t *i);
struct request *scheduler_next_waiting(const struct scheduler *s, const struct request *after);

struct block_pool;
/* Returns the pool of a KV group, or NULL when there is no such group. */
const struct block_pool *scheduler_pool(const struct scheduler *s, uint32_t i_kv_group,
                                        uint32_t *block_tokens);
void scheduler_get_stats(const struct scheduler *s, struct scheduler_stats *out);
/* Adds accepted draft tokens by position in a run ([0] = first) to sums[SCHEDULER_MAX_DRAFT]. */
void scheduler_add_accepted(const struct scheduler *s, uint64_t *sums);
/* Estimates how many tokens of `r` need not be computed here. They are in the prefix cache, or
 * one of the last waiting sequences begins with them. Routing calls the function, which is O(log
 * n). */
uint32_t scheduler_cached_tokens(const struct scheduler *s, struct request *r);
/* Describes the work between a new request and its first token. */
struct scheduler_load {
    uint64_t n_prompt_tokens; /* prompt tokens, waiting or running, that are still to be computed */
    uint32_t running, waiting; /* running and waiting sequences */
    uint32_t n_free_slots;
    uint64_t n_free_tokens; /* free space in the KV cache, in tokens */
};
/* Returns the number of this tenant's waiting sequences. */
uint32_t scheduler_n_waiting(const struct scheduler *s, uint64_t tenant);
void scheduler_get_load(const struct scheduler *s, struct scheduler_load *out);
/* Checks every invariant (blocks conserved, owners equal, lists consistent), for tests. Returns
 * false and a text at the first violation. */
bool scheduler_check(const struct scheduler *s, struct error *err);
