/* Implements a pool of threads that runs the tasks of one operator at a time (threads.h).
 * The calling thread publishes a run in `ticket`, wakes the threads, and runs tasks itself. A
 * thread claims a task by decreasing the ticket, runs it, and decreases `n_pending`; at 0 the
 * caller returns.
 * One thread calls a pool at a time. The fields of a run change only while no task can be
 * claimed. Waiting spins for SPIN_NS, then sleeps on a futex. */
#include "kernels/host/threads.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/base/spin.h"
#include "common/host/numa.h"
#include "common/host/thread.h"

/* SPIN_NS is longer than the parts of a step that run in the caller alone (a norm, a rope), and
 * much shorter than a time slice. */
enum { SPIN_NS = 30000, SPINS_PER_CLOCK = 32, SLICE_NS = 100000 };

struct pool_thread {
    struct pool *pool;
    pthread_t thread;
    uint32_t i_thread;
};

/* A run is published by one store to `ticket`: the number of the run in the high half, the tasks
 * that are not claimed yet in the low half. A thread claims a task by subtracting one.
 * pool_run() returns when the last task is done, even if other threads still sleep, so a late
 * thread may read the fields of a later run. It uses the values only if its claim succeeds, and
 * the claim fails if the ticket has changed. The fields are written only while the ticket's low
 * half is 0, when no thread can claim. */
struct pool {
    uint32_t n_threads, n_started;
    struct pool_thread *workers; /* `workers` has the shape [n_threads]: entry 0 is the caller */
    cpu_set_t cpus;              /* CPUs that the process may use; empty = they are not known */
    /* number of the caller's CPU in `cpus`, if each thread has a CPU of its own */
    uint32_t first_cpu;
    bool is_spread;
    alignas(64) atomic_uint_fast64_t ticket;
    _Atomic(void (*)(void *, uint32_t, uint32_t)) task;
    _Atomic(void *) ctx;
    atomic_uint n_tasks;
    /* number of tasks that are not done yet; the caller sleeps on this futex */
    alignas(64) atomic_uint n_pending;
    atomic_bool caller_sleeps;
    alignas(64)
        /* incremented for each run and when the pool is freed; idle threads sleep on this futex */
        atomic_uint epoch;
    atomic_uint n_sleeping;
    atomic_bool stop, running;
};

static_assert(sizeof(atomic_uint) == 4, "a futex is 32 bits");

static void futex_wait(atomic_uint *word, uint32_t value)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, uint32_t n)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n > INT_MAX ? INT_MAX : n, NULL, NULL, 0);
}

/* Spins while *word is `value`. With `until`, it spins until *word is `value`. Returns false
 * when SPIN_NS have passed. */
static bool spin(atomic_uint *word, uint32_t value, bool until)
{
    uint64_t end = 0;
    for (uint32_t i = 0;; i++) {
        if ((atomic_load_explicit(word, memory_order_acquire) == value) == until)
            return true;
        spin_pause();
        if (i % SPINS_PER_CLOCK == 0) {
            uint64_t now = clock_mono_ns();
            if (end == 0)
                end = now + SPIN_NS;
            else if (now >= end)
                return false;
        }
    }
}

/* Runs tasks of the current run until none is left to claim. */
static void work(struct pool *p, uint32_t i_thread)
{
    uint_fast64_t ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
    while ((uint32_t)ticket != 0) {
        void (*task)(void *, uint32_t, uint32_t) =
            atomic_load_explicit(&p->task, memory_order_acquire);
        void *ctx = atomic_load_explicit(&p->ctx, memory_order_acquire);
        uint32_t n_tasks = atomic_load_explicit(&p->n_tasks, memory_order_acquire);
        if (!atomic_compare_exchange_weak_explicit(&p->ticket, &ticket, ticket - 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        task(ctx, n_tasks - (uint32_t)ticket, i_thread);
        /* Both accesses are seq_cst: either the caller reads 0, or this thread reads in
         * caller_sleeps that the caller sleeps. */
        if (atomic_fetch_sub(&p->n_pending, 1) == 1 && atomic_load(&p->caller_sleeps))
            futex_wake(&p->n_pending, 1);
        ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
    }
}

static void *worker_main(void *arg)
{
    struct pool_thread *w = arg;
    struct pool *p = w->pool;
    thread_set_slice(SLICE_NS);
    for (;;) {
        /* The epoch is read before work(), so that a later run is detected. */
        uint32_t epoch = atomic_load(&p->epoch);
        if (atomic_load(&p->stop))
            return NULL;
        work(p, w->i_thread);
        if (spin(&p->epoch, epoch, false))
            continue;
        atomic_fetch_add(&p->n_sleeping, 1);
        while (atomic_load(&p->epoch) == epoch)
            futex_wait(&p->epoch, epoch);
        atomic_fetch_sub(&p->n_sleeping, 1);
    }
}

static void wake_workers(struct pool *p, uint32_t n)
{
    atomic_fetch_add(&p->epoch, 1);
    if (n > 0 && atomic_load(&p->n_sleeping) > 0)
        futex_wake(&p->epoch, n);
}

static void wait_done(struct pool *p)
{
    if (spin(&p->n_pending, 0, true))
        return;
    atomic_store(&p->caller_sleeps, true);
    for (uint32_t n; (n = atomic_load(&p->n_pending)) != 0;)
        futex_wait(&p->n_pending, n);
    atomic_store(&p->caller_sleeps, false);
}

void pool_run(struct pool *p, uint32_t n_tasks, void (*task)(void *ctx, uint32_t, uint32_t),
              void *ctx)
{
    bool nested = atomic_exchange(&p->running, true);
    assert(!nested); /* a task that called pool_run() would wait for itself */
    (void)nested;
    if (p->n_threads == 1 || n_tasks <= 1) {
        for (uint32_t i = 0; i < n_tasks; i++)
            task(ctx, i, 0);
    } else {
        uint64_t ticket = atomic_load_explicit(&p->ticket, memory_order_relaxed);
        assert((uint32_t)ticket == 0);
        atomic_store_explicit(&p->task, task, memory_order_release);
        atomic_store_explicit(&p->ctx, ctx, memory_order_release);
        atomic_store_explicit(&p->n_tasks, n_tasks, memory_order_release);
        atomic_store_explicit(&p->n_pending, n_tasks, memory_order_release);
        atomic_store(&p->ticket, ((ticket >> 32) + 1) << 32 | n_tasks);
        wake_workers(p, n_tasks - 1);
        work(p, 0);
        wait_done(p);
    }
    atomic_store(&p->running, false);
}

uint32_t pool_n_threads(const struct pool *p)
{
    return p->n_threads;
}

struct pool_cpus pool_share(uint32_t i, uint32_t n, uint32_t n_cpus, uint32_t n_threads)
{
    struct pool_cpus all = {0, n_cpus};
    uint32_t share = n_cpus / n > 0 ? n_cpus / n : 1;
    if (n < 2 || n_threads > share || (uint64_t)n * n_threads < n_cpus)
        return all;
    if (n > n_cpus)
        return (struct pool_cpus){i % n_cpus, i % n_cpus + 1};
    return (struct pool_cpus){(uint32_t)((uint64_t)i * n_cpus / n),
                              (uint32_t)((uint64_t)(i + 1) * n_cpus / n)};
}

void pool_own(const struct numa *numa, const cpu_set_t *allowed, struct pool_cpus share,
              cpu_set_t *out)
{
    uint16_t order[CPU_SETSIZE];
    uint32_t n = numa_order(numa, allowed, order);
    CPU_ZERO(out);
    for (uint32_t k = share.begin; k < share.end && k < n; k++)
        CPU_SET(order[k], out);
}

/* Gives each thread a CPU of its own if there are as many CPUs as threads; otherwise the threads
 * share the set. Without that, the system may leave two threads on one CPU for tens of
 * milliseconds while another process uses a CPU, because waiting threads seem idle. The caller's
 * CPU is random: callers do more work than their other threads, and the callers of several
 * processes should not share one CPU. */
static void pin(struct pool *p, uint32_t i_thread, pthread_t thread, const cpu_set_t *set)
{
    cpu_set_t own = *set;
    if ((uint32_t)CPU_COUNT(set) == p->n_threads) {
        /* `left` counts the CPUs before this thread's CPU; other pools begin elsewhere. */
        uint32_t left = (i_thread + p->first_cpu) % p->n_threads;
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, set) && left-- != 0)
                CPU_CLR(cpu, &own);
    }
    /* If the CPU is not available any more, the thread stays on its old CPUs. */
    (void)pthread_setaffinity_np(thread, sizeof own, &own);
}

void pool_spread(struct pool *p, uint32_t i, uint32_t n)
{
    uint32_t n_cpus = (uint32_t)CPU_COUNT(&p->cpus);
    struct pool_cpus share = pool_share(i, n, n_cpus, p->n_threads);
    cpu_set_t set = p->cpus;
    bool anywhere = share.end - share.begin == n_cpus && p->n_threads != n_cpus;
    if (n_cpus == 0 || (anywhere && !p->is_spread))
        return; /* the thread is not pinned, so that a set of CPUs that grows later is used */
    p->is_spread = !anywhere;
    if (share.end - share.begin < n_cpus) {
        struct numa numa;
        struct error err;
        /* numa is then empty: CPUs are ordered by number */
        if (numa_read("", &numa, &err) != STATUS_OK) {
        }
        pool_own(&numa, &p->cpus, share, &set);
    }
    thread_set_slice(SLICE_NS);
    pin(p, 0, pthread_self(), &set);
    for (uint32_t t = 1; t <= p->n_started; t++)
        pin(p, t, p->workers[t].thread, &set);
}

static enum status start(struct pool *p, struct error *err)
{
    sigset_t all, before; /* the main thread handles signals */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = 0;
    for (uint32_t i = 1; i < p->n_threads && rc == 0; i++) {
        struct pool_thread *w = &p->workers[i];
        *w = (struct pool_thread){.pool = p, .i_thread = i};
        rc = pthread_create(&w->thread, NULL, worker_main, w);
        if (rc == 0) {
            char name[16];
            snprintf(name, sizeof name, "cox-k%u", i % 1000);
            pthread_setname_np(w->thread, name);
            p->n_started++;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return error_set(err, STATUS_LIMIT,
                         "cannot start thread %u of %u: %s. Use fewer threads (--threads)",
                         p->n_started + 1, p->n_threads - 1, strerror(rc));
    return STATUS_OK;
}

enum status pool_new(uint32_t n_threads, struct pool **out, struct error *err)
{
    *out = NULL;
    if (n_threads == 0 || n_threads > POOL_MAX_THREADS)
        return error_set(err, STATUS_INVALID,
                         "%u threads were requested; the number must be from 1 to %u", n_threads,
                         POOL_MAX_THREADS);
    struct pool *p = aligned_alloc(alignof(struct pool), sizeof *p);
    if (!p)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for a pool of threads. Free memory on this machine");
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    if (sched_getaffinity(0, sizeof p->cpus, &p->cpus) != 0)
        CPU_ZERO(&p->cpus);
    random_secure(&p->first_cpu, sizeof p->first_cpu);
    p->first_cpu %= n_threads;
    p->workers = mem_array(n_threads, sizeof *p->workers);
    enum status s = start(p, err);
    if (s != STATUS_OK) {
        pool_free(p);
        return s;
    }
    *out = p;
    return STATUS_OK;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    wake_workers(p, p->n_threads);
    for (uint32_t i = 1; i <= p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    mem_free(p->workers);
    free(p);
}
