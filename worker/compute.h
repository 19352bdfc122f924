#pragma once
/* Declares the compute thread, which executes jobs in order, one at a time, on the executor.
 * When the executor has `begin` and `finish`, the next plan begins while the previous one is
 * computed. Other jobs wait.
 *
 * A job is a plan, a join, a reset, a check of the peers, an adapter, sleep or the end of a
 * communicator. The loop pushes a job, and on_done receives it with its result, in the same
 * order. Jobs are recycled with their arenas, so a steady state allocates nothing.
 *
 * The queue is bounded: compute_push_plan refuses above COMPUTE_QUEUE_MAX. The head never has
 * more than two steps in flight, but a rank without collectives may lag behind rank 0 by more.
 * All functions are called on the loop thread; on_done runs there too. */
#include "common/loop/loop.h"
#include "worker/executor/executor.h"

#define COMPUTE_QUEUE_MAX 1024u

enum job_kind {
    JOB_PLAN,
    JOB_JOIN,
    JOB_RESET,
    JOB_CHECK,
    JOB_ABORT,
    /* adapters and sleep belong to no epoch, so an abort does not drop these jobs */
    JOB_ADAPTER,
    JOB_SLEEP,
    JOB_KIND_COUNT
};

/* `job_loss` is an adapter that a join could not load again. */
struct job_loss {
    uint64_t id;
    struct error why;
    const struct job_loss *next;
};

/* `job_done` is a finished job. Everything in it is valid only during on_done. */
struct job_done {
    enum job_kind kind;
    bool dropped; /* an abort removed the plan or check from the queue before it began */
    uint64_t term_epoch, step;
    uint64_t session, frame_bytes; /* session and size of the plan's frame, for credit */
    enum status status;
    const struct error *error;         /* error of the job; valid when status is not STATUS_OK */
    const struct msg_result *result;   /* result of a JOB_PLAN that succeeded, else NULL */
    const struct msg_adapter *adapter; /* order of a JOB_ADAPTER, else NULL */
    /* JOB_JOIN: the adapters that were not loaded again; NULL = none */
    const struct job_loss *losses;
};

struct compute;
struct compute_options {
    struct executor *executor; /* executor of the jobs; borrowed until compute_stop */
    void (*on_done)(void *ctx, const struct job_done *d);
    /* `await` is called on the compute thread before a join, a reset, sleep or the end of a
     * communicator. It waits until no other thread uses the executor's data of the old epoch.
     * May be NULL. */
    void (*await)(void *ctx);
    void *ctx;
};
MUST_USE enum status compute_start(struct loop *l, const struct compute_options *o,
                                   struct compute **out, struct error *err);
/* Queues the frame of an already decoded plan `m`. The frame is copied and decoded again on the
 * compute thread, which is cheaper than a deep copy. Returns STATUS_LIMIT when the queue is
 * full. */
MUST_USE enum status compute_push_plan(struct compute *c, const struct msg_plan *m,
                                       uint64_t session, struct str frame, struct error *err);
/* Queues a join, with a copy of *comm. */
MUST_USE enum status compute_push_join(struct compute *c, const struct executor_comm *comm,
                                       struct error *err);
void compute_push_reset(struct compute *c, uint64_t term_epoch);
/* Queues the loading or unloading of an adapter, with a copy of *m. Plans that were queued
 * earlier are executed first. */
MUST_USE enum status compute_push_adapter(struct compute *c, const struct msg *m);
/* Queues sleep at a level, or waking. */
void compute_push_sleep(struct compute *c, enum sleep_level level);
/* Queues a check that the other ranks can be reached. The executor must have `check`. */
void compute_push_check(struct compute *c, uint64_t term_epoch);
/* Drops the queued jobs of the epoch, interrupts the running one and ends the communicator.
 * on_done receives JOB_ABORT when no job of the old epoch can run any more. */
void compute_push_abort(struct compute *c);
bool compute_busy(const struct compute *c); /* true while a plan executes */
/* Interrupts the running job and waits for the end of the thread. No further job begins. Returns
 * false when the thread has not ended within timeout_ms, because it loads a shard, which cannot
 * be interrupted. Afterwards only compute_stop may be called. */
bool compute_end(struct compute *c, uint32_t timeout_ms);
/* Like compute_end without a time limit, then joins the thread and frees `c`. Does nothing when
 * `c` is NULL. */
void compute_stop(struct compute *c);
