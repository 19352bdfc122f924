/* Tests the pool of threads that encodes prompts and prepares requests. `encode_pool_submit`
 * queues jobs, the pool's threads run them, and `done` is called on the loop's thread. A mutex,
 * `gate`, holds the threads where a test needs a full queue. Invariants: `done` is called once
 * for every job, the bounds on jobs and bytes hold, and no tenant can take all threads. */
#include "gateway/base/encode_pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_JOBS = 50 };

struct job {
    struct encode_job job; /* must be the first field: the job's address is the struct's */
    bool has_run;
};

static struct loop *loop;
static struct job jobs[N_JOBS];
static pthread_t loop_thread;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static int n_done, stop_at;

static void run(struct encode_job *j)
{
    assert_false(pthread_equal(pthread_self(), loop_thread));
    pthread_mutex_lock(&gate); /* a test holds `gate` to keep the queue full */
    pthread_mutex_unlock(&gate);
    ((struct job *)j)->has_run = true;
}

static void done(struct encode_job *j)
{
    assert_true(pthread_equal(pthread_self(), loop_thread));
    if (++n_done == stop_at)
        loop_stop(loop);
}

static int setup(void **state)
{
    struct error err;
    loop_thread = pthread_self();
    n_done = stop_at = 0;
    for (int i = 0; i < N_JOBS; i++)
        jobs[i] = (struct job){.job = {.run = run, .done = done, .bytes = 100}};
    return loop_new(&loop, &err);
}

static int teardown(void **state)
{
    loop_free(loop);
    return 0;
}

static void test_all_come_back(void **state)
{
    struct encode_pool *p;
    struct error err;
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 3, 0}, N_JOBS, 1 << 20, &p, &err),
        STATUS_OK);
    stop_at = N_JOBS;
    for (int i = 0; i < N_JOBS; i++)
        assert_int_equal(encode_pool_submit(p, &jobs[i].job), STATUS_OK);
    loop_run(loop);
    for (int i = 0; i < N_JOBS; i++)
        assert_true(jobs[i].has_run);
    encode_pool_free(p);
    assert_int_equal(n_done, N_JOBS);
}

static int niceness_of_pool;
static void note_niceness(struct encode_job *j)
{
    niceness_of_pool = getpriority(PRIO_PROCESS, (id_t)gettid());
    run(j);
}

static void test_threads_run_behind_ours(void **state)
{
    struct encode_pool *p;
    struct error err;
    int ours = getpriority(PRIO_PROCESS, (id_t)gettid()), want = ours + 3 < 19 ? ours + 3 : 19;
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 1, 3}, N_JOBS, 1 << 20, &p, &err),
        STATUS_OK);
    jobs[0].job.run = note_niceness;
    stop_at = 1;
    assert_int_equal(encode_pool_submit(p, &jobs[0].job), STATUS_OK);
    loop_run(loop);
    encode_pool_free(p);
    assert_int_equal(niceness_of_pool, want);
    assert_int_equal(getpriority(PRIO_PROCESS, (id_t)gettid()), ours);
}

static void test_bounds(void **state)
{
    struct encode_pool *p;
    struct error err;
    pthread_mutex_lock(&gate);
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 1, 0}, 4, 350, &p, &err), STATUS_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(encode_pool_submit(p, &jobs[i].job), STATUS_OK);
    /* job 3 has too many bytes */
    assert_int_equal(encode_pool_submit(p, &jobs[3].job), STATUS_LIMIT);
    jobs[3].job.bytes = 10;
    assert_int_equal(encode_pool_submit(p, &jobs[3].job), STATUS_OK);
    jobs[4].job.bytes = 10;
    /* job 4 is one job too many */
    assert_int_equal(encode_pool_submit(p, &jobs[4].job), STATUS_LIMIT);
    pthread_mutex_unlock(&gate);
    stop_at = 4;
    loop_run(loop);
    jobs[0].job.bytes = 350;
    stop_at = 5;
    /* all bytes of the queue are free again */
    assert_int_equal(encode_pool_submit(p, &jobs[0].job), STATUS_OK);
    loop_run(loop);
    encode_pool_free(p);
}

/* A full queue accepts a job that only frees memory. The job counts like any other job. */
static void test_dispose(void **state)
{
    struct encode_pool *p;
    struct error err;
    pthread_mutex_lock(&gate);
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 1, 0}, 1, 350, &p, &err), STATUS_OK);
    assert_int_equal(encode_pool_submit(p, &jobs[0].job), STATUS_OK);
    jobs[1].job.bytes = 1000;
    encode_pool_dispose(p, &jobs[1].job);
    assert_int_equal(encode_pool_submit(p, &jobs[2].job), STATUS_LIMIT);
    pthread_mutex_unlock(&gate);
    stop_at = 2;
    loop_run(loop);
    assert_true(jobs[1].has_run);
    stop_at = 3;
    assert_int_equal(encode_pool_submit(p, &jobs[2].job), STATUS_OK);
    loop_run(loop);
    encode_pool_free(p);
}

/* When the pool is freed, `done` is called for every queued job, whether it has run or not, so
 * that its owner can free it. */
static void test_free_gives_back(void **state)
{
    struct encode_pool *p;
    struct error err;
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 2, 0}, N_JOBS, 1 << 20, &p, &err),
        STATUS_OK);
    for (int i = 0; i < N_JOBS; i++)
        assert_int_equal(encode_pool_submit(p, &jobs[i].job), STATUS_OK);
    encode_pool_free(p);
    assert_int_equal(n_done, N_JOBS);
}

static void run_at_once(struct encode_job *j)
{
    ((struct job *)j)->has_run = true;
}

/* Large jobs that do not end delay only other large jobs: one thread does not run large jobs. */
static void test_small_ones_do_not_wait_for_large_ones(void **state)
{
    struct encode_pool *p;
    struct error err;
    for (uint32_t n_threads = 2; n_threads <= 4; n_threads++) {
        n_done = 0;
        pthread_mutex_lock(&gate);
        assert_int_equal(encode_pool_new(loop, &(struct encode_threads){"pool", n_threads, 0},
                                         N_JOBS, 1 << 30, &p, &err),
                         STATUS_OK);
        for (int i = 0; i < 8; i++) {
            jobs[i].has_run = false;
            jobs[i].job.bytes = ENCODE_LARGE_BYTES + 1;
            assert_int_equal(encode_pool_submit(p, &jobs[i].job), STATUS_OK);
        }
        /* each small job is submitted after `done` was called for the job before it */
        for (int i = 8; i < 12; i++) {
            jobs[i].job.bytes = ENCODE_LARGE_BYTES;
            jobs[i].job.run = run_at_once;
            stop_at = n_done + 1;
            assert_int_equal(encode_pool_submit(p, &jobs[i].job), STATUS_OK);
            loop_run(loop);
            assert_true(jobs[i].has_run);
        }
        for (int i = 0; i < 8; i++)
            assert_false(jobs[i].has_run);
        pthread_mutex_unlock(&gate);
        stop_at = 12;
        loop_run(loop);
        for (int i = 0; i < 8; i++)
            assert_true(jobs[i].has_run);
        encode_pool_free(p);
    }
}

/* A dropped job, whose client has disconnected, does not run. Its bytes are free at once, at any
 * position in the queue. */
static void test_dropped(void **state)
{
    /* positions in the queue: in the middle, the last, the first, the only one */
    static const int drops[] = {2, 4, 1, 3};
    struct encode_pool *p;
    struct error err;
    pthread_mutex_lock(&gate);
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 1, 0}, 5, 1 << 20, &p, &err),
        STATUS_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(encode_pool_submit(p, &jobs[i].job), STATUS_OK);
    /* The thread may already have taken job 0, so the test does not drop it. */
    for (int i = 0; i < 4; i++)
        encode_pool_drop(p, &jobs[drops[i]].job);
    for (int i = 0; i < 4; i++)
        encode_pool_drop(p, &jobs[drops[i]].job); /* a second drop of the same job has no effect */
    for (int i = 5; i < 9; i++)
        assert_int_equal(encode_pool_submit(p, &jobs[i].job), STATUS_OK);
    assert_int_equal(encode_pool_submit(p, &jobs[9].job), STATUS_LIMIT);
    pthread_mutex_unlock(&gate);
    stop_at = 9;
    loop_run(loop);
    for (int i = 0; i < 9; i++)
        assert_int_equal(jobs[i].has_run, i == 0 || i >= 5);
    encode_pool_free(p);
    assert_int_equal(n_done, 9);
}

/* ---- several tenants ---- */

static uint64_t ran[N_JOBS]; /* tenants of the jobs, in the order in which they ran */
static int n_ran;
static pthread_mutex_t note = PTHREAD_MUTEX_INITIALIZER;

static void run_noted(struct encode_job *j)
{
    run(j);
    pthread_mutex_lock(&note);
    ran[n_ran++] = j->tenant;
    pthread_mutex_unlock(&note);
}

static void submit_of(struct encode_pool *p, int begin, int end, uint64_t tenant)
{
    for (int i = begin; i < end; i++) {
        jobs[i].job.tenant = tenant;
        jobs[i].job.run = run_noted;
        assert_int_equal(encode_pool_submit(p, &jobs[i].job), STATUS_OK);
    }
}

/* Another tenant's next job waits for at most one job of a tenant that has queued many jobs. */
static void test_tenants_take_turns(void **state)
{
    struct encode_pool *p;
    struct error err;
    n_ran = 0;
    pthread_mutex_lock(&gate);
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 1, 0}, N_JOBS, 1 << 20, &p, &err),
        STATUS_OK);
    submit_of(p, 0, 20, 1);
    submit_of(p, 20, 23, 2);
    submit_of(p, 23, 26, 3);
    pthread_mutex_unlock(&gate);
    stop_at = 26;
    loop_run(loop);
    /* The thread may have taken tenant 1's first job before the other jobs were submitted. */
    const int begin = ran[1] == 1;
    for (int i = 0; i < 9; i++)
        assert_int_equal(ran[begin + i], 1 + i % 3);
    for (int i = begin + 9; i < 26; i++)
        assert_int_equal(ran[i], 1);
    encode_pool_free(p);
}

static atomic_int n_at_once, most_at_once;

static void run_counted(struct encode_job *j)
{
    if (j->tenant == 1) {
        const int n = atomic_fetch_add(&n_at_once, 1) + 1;
        if (n > atomic_load(&most_at_once))
            atomic_store(&most_at_once, n);
    }
    run(j);
    if (j->tenant == 1)
        atomic_fetch_sub(&n_at_once, 1);
    ((struct job *)j)->has_run = true;
}

/* A tenant whose jobs do not end holds all threads but one. Another tenant's job runs on that
 * thread. */
static void test_no_tenant_has_all_threads(void **state)
{
    const struct encode_share share = {.max_jobs = 10, .max_bytes = 1 << 20, .max_running = 2};
    struct encode_pool *p;
    struct error err;
    atomic_store(&most_at_once, 0);
    pthread_mutex_lock(&gate);
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 3, 0}, N_JOBS, 1 << 20, &p, &err),
        STATUS_OK);
    encode_pool_set_share(p, &share);
    for (int i = 0; i < 10; i++) {
        jobs[i].job.tenant = 1;
        jobs[i].job.run = run_counted;
        assert_int_equal(encode_pool_submit(p, &jobs[i].job), STATUS_OK);
    }
    /* job 10 belongs to tenant 0 */
    assert_int_equal(encode_pool_submit(p, &jobs[10].job), STATUS_OK);
    jobs[11].job.tenant = 1;
    /* the tenant's share is full */
    assert_int_equal(encode_pool_submit(p, &jobs[11].job), STATUS_LIMIT);
    jobs[12].job = (struct encode_job){.run = run_at_once, .done = done, .tenant = 2};
    pthread_mutex_unlock(&gate);
    stop_at = 11;
    loop_run(loop);
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 6; i++)
        assert_int_equal(encode_pool_submit(p, &jobs[i].job), STATUS_OK);
    stop_at = 12;
    assert_int_equal(encode_pool_submit(p, &jobs[12].job), STATUS_OK);
    loop_run(loop); /* the loop ends, although `gate` is still locked */
    assert_true(jobs[12].has_run);
    pthread_mutex_unlock(&gate);
    stop_at = 18;
    loop_run(loop);
    assert_int_equal(encode_pool_n_jobs(p), 0);
    assert_in_range(atomic_load(&most_at_once), 1, 2);
    encode_pool_free(p);
}

/* The bytes of one tenant have a bound of their own, below the pool's. */
static void test_share_of_bytes(void **state)
{
    const struct encode_share share = {.max_jobs = 10, .max_bytes = 250, .max_running = 1};
    struct encode_pool *p;
    struct error err;
    pthread_mutex_lock(&gate);
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 1, 0}, N_JOBS, 400, &p, &err),
        STATUS_OK);
    encode_pool_set_share(p, &share);
    submit_of(p, 0, 2, 1);
    jobs[2].job.tenant = 1;
    assert_int_equal(encode_pool_submit(p, &jobs[2].job), STATUS_LIMIT);
    submit_of(p, 3, 5, 2);
    assert_int_equal(encode_pool_submit(p, &jobs[2].job), STATUS_LIMIT); /* the pool is full too */
    pthread_mutex_unlock(&gate);
    stop_at = 4;
    loop_run(loop);
    encode_pool_free(p);
}

static pthread_cond_t met = PTHREAD_COND_INITIALIZER;
static int n_here;
static bool missed;

/* Waits until a second job runs at the same time; gives up after ten seconds. */
static void run_as_pair(struct encode_job *j)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    pthread_mutex_lock(&gate);
    n_here++;
    pthread_cond_broadcast(&met);
    int rc = 0;
    while (n_here < 2 && rc == 0)
        rc = pthread_cond_timedwait(&met, &gate, &until);
    missed = missed || n_here < 2;
    pthread_mutex_unlock(&gate);
    ((struct job *)j)->has_run = true;
}

/* When a tenant's large job ends, two jobs may start: the tenant's next job, and a large job of
 * another tenant. Both threads must be woken. */
static void test_an_end_may_let_in_two(void **state)
{
    struct encode_pool *p;
    struct error err;
    const struct encode_share share = {N_JOBS, 8 << 20, 1};
    n_here = 0;
    missed = false;
    assert_int_equal(
        encode_pool_new(loop, &(struct encode_threads){"pool", 2, 0}, N_JOBS, 8 << 20, &p, &err),
        STATUS_OK);
    encode_pool_set_share(p, &share);
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 3; i++)
        jobs[i].job.tenant = i == 2 ? 2 : 1;
    jobs[0].job.bytes = jobs[2].job.bytes = ENCODE_LARGE_BYTES + 1;
    jobs[1].job.run = jobs[2].job.run = run_as_pair;
    for (int i = 0; i < 3; i++)
        assert_int_equal(encode_pool_submit(p, &jobs[i].job), STATUS_OK);
    /* in this time the first job starts and the other thread finds nothing to do */
    usleep(50000);
    pthread_mutex_unlock(&gate);
    stop_at = 3;
    loop_run(loop);
    assert_false(missed);
    encode_pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads_run_behind_ours, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dispose, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bounds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_free_gives_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tenants_take_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_tenant_has_all_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_share_of_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_end_may_let_in_two, setup, teardown),
        cmocka_unit_test_setup_teardown(test_small_ones_do_not_wait_for_large_ones, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
