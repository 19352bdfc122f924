#pragma once
/* A few threads for long prompts: parsing, templates and tokenizing must not hold up the loop. The
 * queue is bounded by jobs and by bytes. run executes on a pool thread and touches only its job;
 * done executes on the loop's thread, also for jobs that nobody waits for any more.
 *
 * Tenants take turns. A tenant's jobs begin in the order they came, but one thread is kept free of
 * large ones, so that a prompt waits behind those of its size and not behind a book. A single
 * thread takes all in turn. */
#include <stdatomic.h>

#include "common/loop/loop.h"

enum { ENCODE_LARGE_BYTES = 128 << 10 }; /* jobs of more are large */

struct encode_job {
    void (*run)(struct encode_job *j);
    void (*done)(struct encode_job *j);
    size_t bytes;        /* what it holds while queued */
    uint64_t tenant;     /* whose turn it takes */
    atomic_bool dropped; /* encode_pool_drop was called: a long run may look, and end early */
    /* The pool's. */
    struct encode_job *next;
    struct encode_tenant *owner;
    uint64_t seq;
};

/* One tenant may have so much of a pool. */
struct encode_share {
    uint32_t max_jobs; /* waiting or running */
    uint64_t max_bytes;
    uint32_t max_running; /* at least 1 */
};

struct encode_threads {
    const char *name; /* as ps -L shows it: at most 15 bytes */
    uint32_t n;
    int niceness; /* common/host/thread.h */
};

struct encode_pool;
MUST_USE enum status encode_pool_new(struct loop *l, const struct encode_threads *threads,
                                     uint32_t max_jobs, uint64_t max_bytes,
                                     struct encode_pool **out, struct error *err);
/* Before the first job; without it one tenant may have all of the pool. */
void encode_pool_set_share(struct encode_pool *p, const struct encode_share *share);
uint32_t encode_pool_n_jobs(struct encode_pool *p); /* waiting or running */
uint32_t encode_pool_n_jobs_of(struct encode_pool *p, uint64_t tenant);
/* The job stays the caller's; STATUS_LIMIT when the queue, or the tenant's share of it, is full
 * (nothing was taken). */
MUST_USE enum status encode_pool_submit(struct encode_pool *p, struct encode_job *j);
/* The same of a job that frees what is held already: it is taken however full the queue is. */
void encode_pool_dispose(struct encode_pool *p, struct encode_job *j);
/* Nobody wants its result any more: one that still waits is not run, gives back its room in the
 * queue and comes back through done soon; one that runs, or has run, comes back as ever. */
void encode_pool_drop(struct encode_pool *p, struct encode_job *j);
/* Waits for the running jobs, then calls done for every job not yet given back. NULL is fine. */
void encode_pool_free(struct encode_pool *p);
