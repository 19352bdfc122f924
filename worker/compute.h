#pragma once
/* The compute thread: executes jobs in order, one at a time, on the executor; where that has begin
 * and finish, the next plan begins while the one before is computed, and other jobs wait. A job is
 * a plan, a join, a reset, a look at the peers or the end of a communicator; it goes in from the
 * loop and comes back as done, with its result, in the order it went in. Jobs are recycled with
 * their arenas: a steady state allocates nothing. Bounded: compute_push_plan refuses above
 * COMPUTE_QUEUE_MAX (the head never has more than two steps in flight, but a rank without
 * collectives may lag behind rank 0 by more). All functions on the loop's thread; on_done runs
 * there too. */
#include "common/loop/loop.h"
#include "worker/executor/executor.h"

#define COMPUTE_QUEUE_MAX 1024u

enum job_kind {
    JOB_PLAN,
    JOB_JOIN,
    JOB_RESET,
    JOB_CHECK,
    JOB_ABORT,
    JOB_ADAPTER, /* of no epoch: an abort does not throw it out */
    JOB_KIND_COUNT
};

/* An adapter that a join could not read again. */
struct job_loss {
    uint64_t id;
    struct error why;
    const struct job_loss *next;
};

/* A job that is done. Everything in it is valid only during on_done. */
struct job_done {
    enum job_kind kind;
    bool dropped; /* a plan or check that an abort threw out of the queue: never begun */
    uint64_t term_epoch, step;
    uint64_t session, frame_bytes; /* of the plan's frame: for credit */
    enum status status;
    const struct error *error;         /* when status is not OK */
    const struct msg_result *result;   /* JOB_PLAN that succeeded */
    const struct msg_adapter *adapter; /* JOB_ADAPTER */
    const struct job_loss *losses;     /* JOB_JOIN; NULL: none */
};

struct compute;
struct compute_options {
    struct executor *executor; /* borrowed until compute_stop */
    void (*on_done)(void *ctx, const struct job_done *d);
    /* On the compute thread, before a join, a reset or the end of a communicator: waits until
     * nobody else uses what the executor has for the epoch that is over. Or NULL. */
    void (*await)(void *ctx);
    void *ctx;
};
MUST_USE enum status compute_start(struct loop *l, const struct compute_options *o,
                                   struct compute **out, struct error *err);
/* The frame of a plan that was decoded already (m): it is copied as it came and decoded again on
 * the compute thread, which is cheaper than a deep copy. STATUS_LIMIT: the queue is full. */
MUST_USE enum status compute_push_plan(struct compute *c, const struct msg_plan *m,
                                       uint64_t session, struct str frame, struct error *err);
/* Copies *comm. */
MUST_USE enum status compute_push_join(struct compute *c, const struct executor_comm *comm,
                                       struct error *err);
void compute_push_reset(struct compute *c, uint64_t term_epoch);
/* Copies *m. Plans that came before it are executed before it. */
MUST_USE enum status compute_push_adapter(struct compute *c, const struct msg *m);
/* Are the peers within reach? For an executor with a check. */
void compute_push_check(struct compute *c, uint64_t term_epoch);
/* Drops what is queued of the epoch, interrupts what runs, then ends the communicator: JOB_ABORT
 * comes back when nothing of the old epoch can run any more. */
void compute_push_abort(struct compute *c);
bool compute_busy(const struct compute *c); /* a plan is executing now */
/* Interrupts what runs and waits for the thread's end: no job begins any more. False: it has not
 * ended, because it reads a shard, which nothing interrupts. Only compute_stop may follow. */
bool compute_end(struct compute *c, uint32_t timeout_ms);
/* The same for as long as it takes, then joins the thread. NULL is fine. */
void compute_stop(struct compute *c);
