/* Tests the thread pool. The tests run tasks by `pool_run` from the caller's thread, with 1 to
 * many threads, and count which thread ran which task. Other tests compute the CPUs of the pools
 * of several ranks on a host. Invariants: each task runs once, a run ends after all its tasks,
 * sleeping threads are woken, and a pool keeps to its share of the CPUs. Machines with sockets
 * are made up by the test. */
#include "kernels/host/threads.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/host/numa.h"
#include "kernels/cpu/cpu.h"

enum { MAX_TASKS = 300 };

struct counts {
    atomic_uint done[MAX_TASKS];
    atomic_uint bad_thread;
    uint32_t n_threads;
    /* plain[i] is written by a task and read after the run, which must order the two accesses */
    uint64_t plain[MAX_TASKS];
};

static void count(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    struct counts *c = ctx;
    atomic_fetch_add(&c->done[i_task], 1);
    c->plain[i_task] += i_task + 1;
    if (i_thread >= c->n_threads)
        atomic_fetch_add(&c->bad_thread, 1);
}

static void check_runs(uint32_t n_threads, uint32_t n_runs, uint64_t seed)
{
    struct pool *p;
    struct error err;
    assert_int_equal(pool_new(n_threads, &p, &err), STATUS_OK);
    assert_int_equal(pool_n_threads(p), n_threads);
    /* The runs use two contexts in turn, because a late thread must not take a task of the wrong
     * run. */
    static struct counts c[2];
    memset(c, 0, sizeof c);
    uint32_t want[2][MAX_TASKS] = {{0}};
    c[0].n_threads = c[1].n_threads = n_threads;
    struct rng r = {seed};
    for (uint32_t i = 0; i < n_runs; i++) {
        uint32_t n = (uint32_t)rng_below(&r, i % 16 == 0 ? MAX_TASKS + 1 : 9);
        pool_run(p, n, count, &c[i % 2]);
        for (uint32_t j = 0; j < n; j++)
            want[i % 2][j]++;
        for (uint32_t j = 0; j < MAX_TASKS; j++) {
            assert_int_equal(atomic_load(&c[i % 2].done[j]), want[i % 2][j]);
            assert_int_equal(c[i % 2].plain[j], (uint64_t)want[i % 2][j] * (j + 1));
        }
    }
    assert_int_equal(atomic_load(&c[0].bad_thread) + atomic_load(&c[1].bad_thread), 0);
    pool_free(p);
}

static void test_every_task_once(void **state)
{
    for (uint32_t n_threads = 1; n_threads <= 8; n_threads++)
        check_runs(n_threads, n_threads <= 4 ? 1000 : 100, n_threads);
}

/* Threads fall asleep between runs, and the next run must wake them. */
static void test_runs_after_sleep(void **state)
{
    struct pool *p;
    struct error err;
    static struct counts c;
    memset(&c, 0, sizeof c);
    c.n_threads = 3;
    assert_int_equal(pool_new(3, &p, &err), STATUS_OK);
    for (uint32_t i = 0; i < 20; i++) {
        pool_run(p, 7, count, &c);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    for (uint32_t j = 0; j < 7; j++)
        assert_int_equal(atomic_load(&c.done[j]), 20);
    pool_free(p);
}

/* In a `meeting`, tasks wait for each other. They end only if each thread takes one task, so a
 * run must wake all threads. The caller sleeps while the others work. */
struct meeting {
    atomic_uint arrived, n;
    atomic_uint threads; /* bit i is set when thread i took a task */
};
static void meet(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    struct meeting *m = ctx;
    atomic_fetch_or(&m->threads, 1u << i_thread);
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < atomic_load(&m->n))
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    if (i_thread > 0) /* the caller stops spinning first */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void test_all_threads_work(void **state)
{
    struct pool *p;
    struct error err;
    assert_int_equal(pool_new(4, &p, &err), STATUS_OK);
    for (uint32_t i = 0; i < 10; i++) {
        struct meeting m = {.n = 4};
        pool_run(p, 4, meet, &m);
        assert_int_equal(atomic_load(&m.threads), 15);
    }
    pool_free(p);
}

static void test_limits(void **state)
{
    struct pool *p;
    struct error err;
    assert_int_equal(pool_new(0, &p, &err), STATUS_INVALID);
    assert_null(p);
    assert_int_equal(pool_new(257, &p, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "257"));
    pool_free(NULL);
}

static void test_shares_of_cpus(void **state)
{
    static const struct {
        const char *name;
        uint32_t i, n, n_cpus, n_threads, begin, end;
    } cases[] = {
        {"alone", 0, 1, 2, 2, 0, 2},
        {"one each", 1, 2, 2, 1, 1, 2},
        {"four on two", 2, 4, 2, 1, 0, 1},
        {"halves", 1, 2, 64, 32, 32, 64},
        {"thirds of eight", 1, 3, 8, 2, 0, 8}, /* two CPUs are left for other processes */
        {"thirds of seven, the middle", 1, 3, 7, 2, 0, 7},
        {"thirds of six, the middle", 1, 3, 6, 2, 2, 4},
        {"a machine that they do not fill", 0, 2, 64, 1, 0, 64},
        {"more threads than CPUs", 0, 2, 2, 2, 0, 2},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct pool_cpus got =
            pool_share(cases[k].i, cases[k].n, cases[k].n_cpus, cases[k].n_threads);
        if (got.begin != cases[k].begin || got.end != cases[k].end)
            fail_msg("%s: %u .. %u", cases[k].name, got.begin, got.end);
    }
}

/* The shares are those of a machine with two sockets of four cores. The hyperthreads have the
 * highest numbers. */
static void test_shares_are_near(void **state)
{
    static const struct {
        const char *allowed;
        uint32_t i, n, n_threads;
        const char *want;
    } cases[] = {
        {"0-15", 0, 2, 8, "0-3,8-11"},
        {"0-15", 1, 2, 8, "4-7,12-15"},
        {"0-15", 1, 4, 4, "2-3,10-11"},
        {"0-15", 2, 4, 4, "4-5,12-13"},
        {"0-15", 1, 8, 2, "1,9"},
        {"0-15", 0, 1, 16, "0-15"},
        {"0-7", 0, 2, 4, "0-3"},
        {"2-5", 1, 2, 2, "4-5"},
        {"4-7,12-15", 1, 2, 4, "6-7,14-15"}, /* the process is bound to the second socket */
    };
    struct numa numa = {.n_nodes = 2, .ids = {0, 1}};
    for (uint32_t i = 0; i < NUMA_MAX_CPUS; i++) {
        numa.node_of[i] = i < 16 ? (int16_t)(i % 8 / 4) : -1;
        numa.core_of[i] = (uint16_t)(i < 16 ? i % 8 : i);
    }
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        cpu_set_t allowed, got;
        char text[NUMA_TEXT_BYTES];
        struct error err;
        assert_int_equal(numa_list_parse(str_from(cases[k].allowed), NUMA_MAX_CPUS, &allowed, &err),
                         STATUS_OK);
        struct pool_cpus share =
            pool_share(cases[k].i, cases[k].n, (uint32_t)CPU_COUNT(&allowed), cases[k].n_threads);
        pool_own(&numa, &allowed, share, &got);
        if (strcmp(numa_list_print(&got, text, sizeof text), cases[k].want) != 0)
            fail_msg("%u of %u on %s: %s", cases[k].i, cases[k].n, cases[k].allowed, text);
    }
}

static void note_cpu(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    atomic_fetch_or((atomic_ullong *)ctx, 1ull << sched_getcpu() % 64);
}

/* Pools must keep to their share. The test has one bit of 64 for each CPU, so on a larger
 * machine two CPUs may share a bit. */
static void test_pools_keep_to_their_share(void **state)
{
    cpu_set_t all;
    struct error err;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    uint32_t n_cpus = (uint32_t)CPU_COUNT(&all);
    atomic_ullong seen[2] = {0};
    for (uint32_t i = 0; i < 2; i++) {
        struct pool *p;
        uint32_t n_threads = n_cpus / 2 > 0 ? n_cpus / 2 : 1;
        assert_int_equal(pool_new(n_threads, &p, &err), STATUS_OK);
        pool_spread(p, i, 2);
        for (uint32_t k = 0; k < 20; k++)
            pool_run(p, MAX_TASKS, note_cpu, &seen[i]);
        pool_spread(p, 0, 1);
        pool_free(p);
    }
    if (n_cpus >= 2 && n_cpus <= 64 && n_cpus % 2 == 0)
        assert_int_equal(seen[0] & seen[1], 0);
    cpu_set_t after;
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&all, &after));
}

static void note_affinity(void *ctx, uint32_t i_task, uint32_t i_thread)
{
    cpu_set_t *of_threads = ctx;
    assert_int_equal(sched_getaffinity(0, sizeof of_threads[i_thread], &of_threads[i_thread]), 0);
}

/* With as many threads as CPUs, each thread must have its own CPU, however often threads are
 * placed. */
static void test_threads_that_fill_it_have_a_cpu_each(void **state)
{
    cpu_set_t all, *of_threads;
    struct error err;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    uint32_t n_cpus = (uint32_t)CPU_COUNT(&all);
    if (n_cpus > POOL_MAX_THREADS)
        return;
    struct pool *p;
    assert_int_equal(pool_new(n_cpus, &p, &err), STATUS_OK);
    of_threads = mem_zalloc(n_cpus * sizeof *of_threads);
    for (int round = 0; round < 2; round++) {
        pool_spread(p, 0, 1);
        for (uint32_t k = 0; k < 100; k++)
            pool_run(p, MAX_TASKS, note_affinity, of_threads);
    }
    cpu_set_t met;
    CPU_ZERO(&met);
    for (uint32_t i = 0; i < n_cpus; i++) {
        if (CPU_COUNT(&of_threads[i]) == 0) /* by chance this thread took no task */
            continue;
        assert_int_equal(CPU_COUNT(&of_threads[i]), 1);
        cpu_set_t both;
        CPU_AND(&both, &met, &of_threads[i]);
        assert_int_equal(CPU_COUNT(&both), 0);
        CPU_OR(&met, &met, &of_threads[i]);
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    pool_free(p);
    mem_free(of_threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_task_once),
        cmocka_unit_test(test_runs_after_sleep),
        cmocka_unit_test(test_all_threads_work),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_shares_of_cpus),
        cmocka_unit_test(test_pools_keep_to_their_share),
        cmocka_unit_test(test_shares_are_near),
        cmocka_unit_test(test_threads_that_fill_it_have_a_cpu_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
