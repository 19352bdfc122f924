/* Tests the event loop: timers, turn hooks, the measured lag, and child processes with their
 * output. A test fills `struct seen` from callbacks and stops the loop. Callbacks run on the
 * loop's thread, objects may be freed inside their own callbacks, and child processes die with
 * their parent. */
#include "common/loop/child.h"
#include "common/loop/loop.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct seen {
    struct loop *l;
    struct loop_timer *t;
    struct loop_wakeup *w;
    int timers, turns, wakes, signals, exits, lines, err_lines, kids, term_signal;
    int64_t status;
    size_t longest, bytes;
    char last[64];
    bool free_on_exit;
};

static struct seen start(void)
{
    struct seen s = {0};
    assert_int_equal(loop_new(&s.l, NULL), STATUS_OK);
    return s;
}

static void on_timer(void *ctx)
{
    struct seen *s = ctx;
    if (++s->timers == 3) {
        loop_timer_stop(s->t); /* the timer is stopped inside its own callback */
        s->t = NULL;
        loop_stop(s->l);
    }
}

static void on_turn(void *ctx)
{
    ((struct seen *)ctx)->turns++;
}

static void test_timer_and_turn(void **state)
{
    struct seen s = start();
    loop_on_turn_end(s.l, on_turn, &s);
    s.t = loop_timer_start(s.l, 0, 1, on_timer, &s);
    loop_run(s.l);
    assert_int_equal(s.timers, 3);
    assert_true(s.turns >= 2);
    loop_timer_stop(NULL);
    loop_free(s.l);
}

static void on_once(void *ctx)
{
    struct seen *s = ctx;
    if (++s->timers < 3)
        loop_timer_again(s->t, 1);
    else
        loop_stop(s->l);
}

static void test_once_timer_is_rearmed(void **state)
{
    struct seen s = start();
    s.t = loop_timer_start(s.l, 0, 0, on_once, &s);
    loop_run(s.l);
    assert_int_equal(s.timers, 3);
    loop_free(s.l); /* loop_free frees the timer that is left */
}

/* A turn hook runs after a timer's callback and before the loop sleeps again. */
static void on_first(void *ctx)
{
    ((struct seen *)ctx)->timers++;
}

static void stop_after_timer(void *ctx)
{
    struct seen *s = ctx;
    if (s->timers)
        loop_stop(s->l);
}

static void test_turn_follows_timers(void **state)
{
    struct seen s = start();
    loop_on_turn_end(s.l, stop_after_timer, &s);
    loop_timer_start(s.l, 1, 0, on_first, &s);
    alarm(5); /* the alarm is only a bound, because the tick would wake the loop too */
    loop_run(s.l);
    alarm(0);
    assert_int_equal(s.timers, 1);
    loop_free(s.l);
}

static void on_wake(void *ctx)
{
    struct seen *s = ctx;
    s->wakes++;
    loop_stop(s->l);
}

static void *waker(void *ctx)
{
    struct seen *s = ctx;
    for (int i = 0; i < 100; i++)
        loop_wake(s->w);
    return NULL;
}

static void test_wake_from_a_thread(void **state)
{
    struct seen s = start();
    pthread_t t;
    s.w = loop_wakeup_new(s.l, on_wake, &s);
    assert_int_equal(pthread_create(&t, NULL, waker, &s), 0);
    loop_run(s.l);
    pthread_join(t, NULL);
    assert_in_range(s.wakes, 1, 100);
    loop_wakeup_free(s.w);
    loop_wakeup_free(NULL);
    loop_free(s.l);
}

static void on_signal(void *ctx, int signum)
{
    struct seen *s = ctx;
    assert_int_equal(signum, SIGUSR1);
    if (++s->signals == 2)
        loop_stop(s->l);
}

static void raise_usr1(void *ctx)
{
    raise(SIGUSR1);
}

static void test_signal_has_two_handlers(void **state)
{
    struct seen s = start();
    assert_int_equal(loop_on_signal(s.l, SIGUSR1, on_signal, &s), STATUS_OK);
    assert_int_equal(loop_on_signal(s.l, SIGUSR1, on_signal, &s), STATUS_OK);
    assert_int_equal(loop_on_signal(s.l, 4096, on_signal, &s), STATUS_INVALID);
    loop_timer_start(s.l, 0, 0, raise_usr1, &s);
    loop_run(s.l);
    assert_int_equal(s.signals, 2);
    loop_free(s.l);
}

static void block_then_stop(void *ctx)
{
    struct seen *s = ctx;
    usleep(500 * 1000);
    /* the lag is visible now, before the tick runs */
    assert_true(loop_lag_ns(s->l) >= 200 * 1000000ull);
    loop_stop(s->l);
}

static void test_lag(void **state)
{
    struct seen s = start();
    assert_int_equal(loop_lag_ns(s.l), 0);
    loop_timer_start(s.l, 0, 0, block_then_stop, &s);
    loop_run(s.l);
    loop_free(s.l);
}

/* ---- children ---- */

static void on_line(void *ctx, struct loop_child *c, const char *line, size_t n, bool is_stderr)
{
    struct seen *s = ctx;
    assert_int_equal(strlen(line), n);
    s->lines++;
    s->err_lines += is_stderr;
    s->bytes += n;
    s->longest = n > s->longest ? n : s->longest;
    snprintf(s->last, sizeof s->last, "%s", line);
}

static void on_exit_(void *ctx, struct loop_child *c, int64_t status, int term_signal)
{
    struct seen *s = ctx;
    s->status = status;
    s->term_signal = term_signal;
    loop_child_kill(c, SIGKILL); /* loop_child_kill has no effect, because the child has ended */
    if (s->free_on_exit)
        loop_child_free(c);
    if (++s->exits == s->kids)
        loop_stop(s->l);
}

static struct loop_child *spawn(struct seen *s, const char *script)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    struct loop_child_options o = {.argv = argv, .on_line = on_line, .on_exit = on_exit_, .ctx = s};
    struct loop_child *c = NULL;
    struct error err = {0};
    if (loop_child_spawn(s->l, &o, &c, &err) != STATUS_OK)
        print_error("%s\n", err.text);
    assert_non_null(c);
    s->kids++;
    return c;
}

static void test_child_lines_and_status(void **state)
{
    struct seen s = start();
    struct loop_child *c = spawn(&s, "echo one; echo two >&2; printf 'no newline'; exit 7");
    assert_true(loop_child_pid(c) > 0);
    loop_run(s.l);
    assert_int_equal(s.status, 7);
    assert_int_equal(s.term_signal, 0);
    assert_int_equal(s.lines, 3);
    assert_int_equal(s.err_lines, 1);
    assert_int_equal(s.bytes, 3 + 3 + 10);
    loop_child_free(c);
    loop_free(s.l);
}

static void test_long_lines_come_in_pieces(void **state)
{
    struct seen s = start();
    s.free_on_exit = true;
    spawn(&s, "head -c 100000 /dev/zero | tr '\\0' x");
    loop_run(s.l);
    assert_int_equal(s.bytes, 100000);
    assert_in_range(s.longest, 1000, 16384);
    loop_free(s.l);
}

static void test_kill_and_many(void **state)
{
    struct seen s = start();
    s.free_on_exit = true;
    struct loop_child *c = spawn(&s, "exec sleep 60");
    loop_child_kill(c, SIGTERM);
    loop_run(s.l);
    assert_int_equal(s.term_signal, SIGTERM);
    for (int i = 0; i < 8; i++)
        spawn(&s, "echo x");
    loop_run(s.l);
    assert_int_equal(s.exits, 9);
    assert_int_equal(s.lines, 8);
    loop_free(s.l);
}

static void test_spawn_fails_by_name(void **state)
{
    struct seen s = start();
    const char *argv[] = {"/nonexistent/program", NULL};
    struct loop_child_options o = {.argv = argv};
    struct loop_child *c = NULL;
    struct error err = {0};
    assert_int_equal(loop_child_spawn(s.l, &o, &c, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nonexistent/program: No such file"));
    loop_free(s.l);
}

static void test_environment_is_replaced(void **state)
{
    struct seen s = start();
    const char *argv[] = {"/bin/sh", "-c", "echo $COX_X", NULL}, *env[] = {"COX_X=here", NULL};
    struct loop_child_options o = {
        .argv = argv, .env = env, .on_line = on_line, .on_exit = on_exit_, .ctx = &s};
    struct loop_child *c = NULL;
    assert_int_equal(loop_child_spawn(s.l, &o, &c, NULL), STATUS_OK);
    s.kids = 1;
    loop_run(s.l);
    assert_string_equal(s.last, "here");
    loop_child_free(c);
    loop_free(s.l);
}

/* A child of the test starts a grandchild through the loop and is killed. The grandchild must
 * die too, which closes its end of the pipe. */
static void test_children_die_with_their_parent(void **state)
{
    int fds[2];
    char byte;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct seen s = start();
        const char *argv[] = {"sh", "-c", "echo up; exec sleep 60", NULL};
        struct loop_child_options o = {.argv = argv, .inherit_stdio = true};
        struct loop_child *c;
        dup2(fds[1], STDOUT_FILENO);
        close(fds[0]);
        close(fds[1]);
        if (loop_child_spawn(s.l, &o, &c, NULL) != STATUS_OK)
            _exit(1);
        pause();
        _exit(0);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1); /* the byte shows that the grandchild runs */
    kill(pid, SIGKILL);
    alarm(10);
    while (read(fds[0], &byte, 1) > 0) {
    }
    alarm(0);
    close(fds[0]);
}

static void test_free_before_exit(void **state)
{
    struct seen s = start();
    struct loop_child *c = spawn(&s, "echo never seen; exit 0");
    loop_child_free(c);
    s.kids = 0; /* a freed child's on_exit is not called and does not count */
    s.free_on_exit = true;
    spawn(&s, "sleep 0.1; exit 3");
    loop_run(s.l);
    assert_int_equal(s.status, 3);
    assert_int_equal(s.lines, 0);
    struct loop_child *running = spawn(&s, "exec sleep 60");
    int pid = loop_child_pid(running);
    loop_free(s.l); /* the child still runs, and the loop does not end it */
    kill(pid, SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timer_and_turn),
        cmocka_unit_test(test_once_timer_is_rearmed),
        cmocka_unit_test(test_turn_follows_timers),
        cmocka_unit_test(test_wake_from_a_thread),
        cmocka_unit_test(test_signal_has_two_handlers),
        cmocka_unit_test(test_lag),
        cmocka_unit_test(test_child_lines_and_status),
        cmocka_unit_test(test_long_lines_come_in_pieces),
        cmocka_unit_test(test_kill_and_many),
        cmocka_unit_test(test_spawn_fails_by_name),
        cmocka_unit_test(test_environment_is_replaced),
        cmocka_unit_test(test_children_die_with_their_parent),
        cmocka_unit_test(test_free_before_exit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
