#pragma once
/* A fork-join pool: run() gives out tasks by an atomic counter to its threads and to the caller,
 * and returns when all are done. Which thread does a task is luck, so a task's result must not
 * depend on it. A thread that the system has taken off its core holds up only the task it is in:
 * idle threads take no tasks, and waiting spins briefly, then sleeps (a busy neighbour must not
 * cost more than its share). */
#include <sched.h>
#include <stdint.h>

#include "common/base/status.h"

struct numa; /* common/host/numa.h */

/* Of a pool, the caller included. */
#define POOL_MAX_THREADS 256u

struct pool;
/* n_threads counts the caller, 1 .. POOL_MAX_THREADS; 1 starts none. */
MUST_USE enum status pool_new(uint32_t n_threads, struct pool **out, struct error *err);
void pool_free(struct pool *p); /* NULL is fine */
uint32_t pool_n_threads(const struct pool *p);

/* CPUs begin .. end - 1 of those that the process may use, in numa_order. */
struct pool_cpus {
    uint32_t begin, end;
};
/* Those of pool i of n alike on one machine of n_cpus. All of them, unless the pools fill the
 * machine (others may be there, too) and each has at least as many CPUs as threads. */
struct pool_cpus pool_share(uint32_t i, uint32_t n, uint32_t n_cpus, uint32_t n_threads);
/* The CPUs of that share: of one core together, and of one node where that can be. */
void pool_own(const struct numa *numa, const cpu_set_t *allowed, struct pool_cpus share,
              cpu_set_t *out);
/* The caller and the pool's threads run on these from now on; i 0 of 1: wherever the process may.
 * Pools that wait for each other in turns are woken where their waker runs, and stay there for
 * milliseconds while another CPU has nothing to do. Where there are as many threads as CPUs each
 * has its own, and a thread that the caller starts later has the caller's. */
void pool_spread(struct pool *p, uint32_t i, uint32_t n);
/* i_thread < n_threads: for scratch memory. One caller at a time. n_tasks 0 is fine. */
void pool_run(struct pool *p, uint32_t n_tasks,
              void (*task)(void *ctx, uint32_t i_task, uint32_t i_thread), void *ctx);
