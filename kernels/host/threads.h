#pragma once
/* Declares a fork-join pool. pool_run() assigns tasks to the pool's threads and the caller by an
 * atomic counter, and returns when all are done. A task may run on any thread, so its result
 * must not depend on the thread. A thread that the system has preempted delays only its own
 * task, since idle threads hold no tasks. Waiting threads spin briefly, then sleep, so that they
 * leave the CPU to other processes. */
#include <sched.h>
#include <stdint.h>

#include "common/base/status.h"

struct numa; /* defined in common/host/numa.h */

/* POOL_MAX_THREADS is the largest number of threads of a pool, counting the caller. */
#define POOL_MAX_THREADS 256u

struct pool;
/* Starts a pool. n_threads counts the caller: 1 .. POOL_MAX_THREADS; 1 starts no thread. */
MUST_USE enum status pool_new(uint32_t n_threads, struct pool **out, struct error *err);
void pool_free(struct pool *p); /* the pointer may be NULL */
uint32_t pool_n_threads(const struct pool *p);

/* `pool_cpus` names CPUs begin .. end - 1 of the CPUs that the process may use, in the order of
 * numa_order. */
struct pool_cpus {
    uint32_t begin, end;
};
/* Returns the CPUs of pool i of n equal pools on one machine of n_cpus. It returns all CPUs
 * unless the pools together fill the machine and each has at least as many CPUs as threads,
 * because other processes may run too. */
struct pool_cpus pool_share(uint32_t i, uint32_t n, uint32_t n_cpus, uint32_t n_threads);
/* Writes the CPUs of `share` to *out. The CPUs of one core stay together, and those of one node
 * if possible. */
void pool_own(const struct numa *numa, const cpu_set_t *allowed, struct pool_cpus share,
              cpu_set_t *out);
/* Moves the caller and the pool's threads to the CPUs of pool i of n; i 0 of 1 means any CPU of
 * the process. Without this call, pools that wait for each other in turn are woken on the CPU of
 * the waking thread, and stay there for milliseconds while another CPU is idle. If there are as
 * many threads as CPUs, each thread gets its own CPU. A thread that the caller starts later
 * inherits the caller's CPU. */
void pool_spread(struct pool *p, uint32_t i, uint32_t n);
/* Runs task(ctx, i_task, i_thread) for i_task < n_tasks; i_thread < n_threads selects scratch
 * memory. Only one caller may run tasks at a time. n_tasks may be 0. */
void pool_run(struct pool *p, uint32_t n_tasks,
              void (*task)(void *ctx, uint32_t i_task, uint32_t i_thread), void *ctx);
