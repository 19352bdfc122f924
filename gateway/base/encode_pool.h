#pragma once
/* Runs jobs for long prompts on a few threads, because parsing, templates and tokenizing must
 * not delay the loop. The queue is bounded by jobs and by bytes. `run` executes on a pool thread
 * and accesses only its job. `done` executes on the loop's thread, also for a dropped job.
 * Tenants take turns. A tenant's jobs start in the order of arrival. One thread is kept free of
 * large jobs, so a short prompt never waits for a very long one. A pool with a single thread
 * takes all jobs in turn. */
#include <stdatomic.h>

#include "common/loop/loop.h"

enum { ENCODE_LARGE_BYTES = 128 << 10 }; /* a job with more bytes than this is large */

struct encode_job {
    void (*run)(struct encode_job *j);
    void (*done)(struct encode_job *j);
    size_t bytes;        /* memory that the job holds while queued */
    uint64_t tenant;     /* tenant whose share the job uses */
    atomic_bool dropped; /* set by `encode_pool_drop`; a long run may check it and end early */
    /* The following fields are used by the pool only. */
    struct encode_job *next;
    struct encode_tenant *owner;
    uint64_t seq;
};

/* `encode_share` limits one tenant within a pool. */
struct encode_share {
    uint32_t max_jobs; /* most waiting and running jobs */
    uint64_t max_bytes;
    uint32_t max_running; /* most running jobs, at least 1 */
};

struct encode_threads {
    const char *name; /* name of the threads in `ps -L`; at most 15 bytes */
    uint32_t n;
    int niceness; /* nice value of the threads (common/host/thread.h) */
};

struct encode_pool;
MUST_USE enum status encode_pool_new(struct loop *l, const struct encode_threads *threads,
                                     uint32_t max_jobs, uint64_t max_bytes,
                                     struct encode_pool **out, struct error *err);
/* Sets the share of each tenant. Call this function before the first job. Without it, one tenant
 * may use the whole pool. */
void encode_pool_set_share(struct encode_pool *p, const struct encode_share *share);
/* returns the number of waiting and running jobs of the pool */
uint32_t encode_pool_n_jobs(struct encode_pool *p);
uint32_t encode_pool_n_jobs_of(struct encode_pool *p, uint64_t tenant);
/* Queues a job, which the caller still owns. Returns STATUS_LIMIT when the queue or the tenant's
 * share of the queue is full. The job is not queued then. */
MUST_USE enum status encode_pool_submit(struct encode_pool *p, struct encode_job *j);
/* Queues a job that frees memory. The job is accepted even when the queue is full. */
void encode_pool_dispose(struct encode_pool *p, struct encode_job *j);
/* Drops a job whose result is no longer needed. A waiting job is not run: it leaves the queue,
 * and `done` is called for it soon. `done` is called as usual for a job that runs or has run. */
void encode_pool_drop(struct encode_pool *p, struct encode_job *j);
/* Waits for the running jobs, then calls `done` for each remaining job. `p` may be NULL. */
void encode_pool_free(struct encode_pool *p);
