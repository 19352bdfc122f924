#pragma once
/* The scheduler of one replica: continuous batching over the KV block table. Pure: no I/O, no
 * clock, no malloc while stepping. It borrows requests from the request table; a request is in at
 * most one scheduler. Flow: scheduler_add → scheduler_step (fills a plan) → … → scheduler_on_result
 * (tokens, ends) → the request leaves. At most `depth` plans are in flight; blocks return to the
 * free list when the results of all steps sent while they were owned are in. */
#include "head/kv/block_part.h"
#include "head/request/request.h"
#include "proto/messages.h"

#define SCHEDULER_MAX_KV_GROUPS 8
#define SCHEDULER_MAX_DRAFT     16u

struct scheduler_config {
    uint32_t max_num_batched_tokens;       /* token budget of one step */
    uint32_t max_num_seqs;                 /* sequence budget of one step */
    uint32_t max_waiting;                  /* bound of the queue */
    uint32_t long_prefill_token_threshold; /* tokens of one prompt per step; 0: off */
    uint32_t max_partial_prefills;         /* prompts that are partly computed at once; 0: any */
    uint32_t max_model_len;
    uint32_t depth;          /* steps in flight, 1 or 2 */
    uint32_t n_draft;        /* tokens the ranks may draft per sequence and step; 0: none */
    uint32_t draft_max_seqs; /* no drafts in steps of more sequences; 0: always */
    uint64_t step_target_ns; /* prompts are cut so that a step takes about this long; 0: off */
    bool enable_prefix_caching;
    bool gives_prompt_logprobs; /* the ranks can */
    uint32_t n_kv_groups;
    struct kv_group kv_groups[SCHEDULER_MAX_KV_GROUPS]; /* n_blocks = minimum over the ranks */
};

struct scheduler_stats {
    uint32_t running, waiting, in_flight;
    uint32_t n_blocks, n_blocks_used;
    uint64_t n_preemptions, n_steps, n_prompt_tokens, n_generated_tokens;
    uint64_t prefix_hit_tokens, prefix_query_tokens;
    uint64_t n_evictions;     /* cached blocks that were handed out again */
    uint64_t n_copied_blocks; /* copy-on-write of a shared prompt's last block */
    uint64_t n_draft_steps, n_drafted, n_accepted; /* runs with drafts; draft tokens run, kept */
};

/* The effect of a result on a request: scheduler_on_result fills these. The tokens themselves have
 * been appended to r->ids. After `ended` the request has left the scheduler. */
struct scheduler_event {
    struct request *request;
    uint32_t n_new;
    bool ended;
};

#define SCHEDULER_SEQ_BYTES 1024u /* at most, of a request that waits here, beside it */

struct scheduler;
MUST_USE enum status scheduler_new(const struct scheduler_config *c, struct scheduler **out,
                                   struct error *err);
void scheduler_free(struct scheduler *s);

/* Could the request ever run here, alone? */
bool scheduler_fits(const struct scheduler *s, const struct request *r);
/* Into the waiting queue. Order: priority class, in it what came back or was preempted, then fair
 * shares per tenant, for one tenant arrival (queue.h). STATUS_LIMIT: queue full.
 * STATUS_NO_MEMORY: the request can never fit into this pool, even alone. */
MUST_USE enum status scheduler_add(struct scheduler *s, struct request *r);
/* r has a grammar: it has come back, or its tenant has room for another answer (mask_shares.h).
 * What was added stays; a replay need not ask. False: true may follow when takes_more_masks
 * has been true once, or the scheduler is empty. */
bool scheduler_takes_masks(struct scheduler *s, const struct request *r);
bool scheduler_takes_more_masks(struct scheduler *s);
/* ids_cap of the largest request that fits alone. */
uint32_t scheduler_most_tokens(const struct scheduler *s);
/* Takes the request out, whatever it is doing; its results still in flight are discarded. */
void scheduler_remove(struct scheduler *s, struct request *r);
/* The next plan, or NULL: nothing to run, or depth reached. The plan's spans are owned by the
 * scheduler and valid until the next call. term_epoch and step are filled in. A plan is to be sent:
 * there is no taking it back. Also ends requests whose deadline has passed: call it on a timer too.
 */
const struct msg_plan *scheduler_step(struct scheduler *s, uint64_t now_ns);
/* Requests that ended without a result: deadline passed (FINISH_TIMEOUT), no memory to run it
 * (FINISH_ERROR), or a resubmission whose tokens already ended it. One at a time, NULL when there
 * is none; it has left the scheduler. Call until NULL after scheduler_add and scheduler_step. */
struct request *scheduler_pop_ended(struct scheduler *s);
/* Applies a result. *events stays valid until the next call. STATUS_PROTOCOL: the result does not
 * match the oldest plan in flight (the replica must be dissolved). */
MUST_USE enum status scheduler_on_result(struct scheduler *s, const struct msg_result *r,
                                         uint64_t now_ns, const struct scheduler_event **events,
                                         uint32_t *n_events, struct error *err);
/* A new epoch of the same ranks: drops sequences and blocks; steps restart at 1. Every request that
 * was in is handed back through fn (running ones as PREEMPTED, in order of arrival; one that
 * scheduler_pop_ended had not given yet as FINISHED). fn may add it to a scheduler, this one too.
 */
typedef void scheduler_request_fn(void *ctx, struct request *r);
void scheduler_reset(struct scheduler *s, uint64_t term_epoch, scheduler_request_fn *fn, void *ctx);

/* ---- requests that move between replicas (reserve.c); id: the caller's, for one move ---- */

/* Tokens of r, from its first on, whose blocks are full, here, and of steps whose results are in.
 */
uint32_t scheduler_movable(const struct scheduler *s, const struct request *r);
/* Those of r's first n_tokens stay what they are, whatever becomes of r, until scheduler_let_go.
 * STATUS_NOT_FOUND: they are not all here. */
MUST_USE enum status scheduler_hold(struct scheduler *s, const struct request *r, uint32_t n_tokens,
                                    uint64_t id);
/* Blocks for r's first n_tokens, which no sequence is given: r is in another scheduler, and
 * borrowed for the call. STATUS_LIMIT: no room. */
MUST_USE enum status scheduler_import(struct scheduler *s, const struct request *r,
                                      uint32_t n_tokens, uint64_t id);
/* The blocks of a hold or an import; NULL: there is none. */
const struct blocks_part *scheduler_parts(const struct scheduler *s, uint64_t id, uint32_t *n);
/* They hold what they are for: found as any cached prefix from now on, and kept until that request
 * has come in or gone, the room is needed, or scheduler_let_go. */
void scheduler_imported(struct scheduler *s, uint64_t id);
void scheduler_let_go(struct scheduler *s, uint64_t id); /* unknown: fine */
/* r is about to move: it runs no further. True: no result of it is awaited any more, and it may be
 * removed without a loss. */
bool scheduler_leave(struct scheduler *s, struct request *r);
bool scheduler_may_leave(const struct request *r); /* by now */
/* Those that run, in order of service; from *i = 0 on, NULL at the end. */
struct request *scheduler_next_running(const struct scheduler *s, uint32_t *i);
struct request *scheduler_next_waiting(const struct scheduler *s, const struct request *after);

struct block_pool;
/* The pool of a KV group; NULL: there are not so many. */
const struct block_pool *scheduler_pool(const struct scheduler *s, uint32_t i_kv_group,
                                        uint32_t *block_tokens);
void scheduler_get_stats(const struct scheduler *s, struct scheduler_stats *out);
/* Draft tokens kept, by their place in a run ([0]: the first), added to sums[SCHEDULER_MAX_DRAFT].
 */
void scheduler_add_accepted(const struct scheduler *s, uint64_t *sums);
/* Tokens of r that need not be computed here: this replica's prefix cache holds them, or one of the
 * last that wait begins with them. For routing: an estimate, which costs O(log n). */
uint32_t scheduler_cached_tokens(const struct scheduler *s, struct request *r);
/* The work that stands between a new request and its first token. */
struct scheduler_load {
    uint64_t n_prompt_tokens;  /* of prompts, waiting or half done, that are still to be computed */
    uint32_t running, waiting; /* sequences */
    uint32_t n_free_slots;
    uint64_t n_free_tokens; /* room in the KV cache */
};
/* Sequences of this tenant that wait. */
uint32_t scheduler_n_waiting(const struct scheduler *s, uint64_t tenant);
void scheduler_get_load(const struct scheduler *s, struct scheduler_load *out);
/* Checks every invariant (blocks conserved, refcounts equal owners, lists consistent): for tests.
 * Returns false and a text at the first violation. */
bool scheduler_check(const struct scheduler *s, struct error *err);
