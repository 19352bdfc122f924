/* Tests how the supervisor ends a process of one model of several (cli/up/process/supervisor.h),
 * with a shell as the process. */
#include "cli/up/process/supervisor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct world {
    struct loop *loop;
    struct supervisor *s;
    bool was_killed;
};

static void on_line(void *ctx, const char *name, const char *line, size_t n, bool is_stderr)
{
    struct world *w = ctx;
    if (n == 2 && memcmp(line, "up", 2) == 0) /* from now on the process ignores SIGTERM */
        supervisor_leave_model(w->s, 1, UP_WORKER, true);
    if (strcmp(name, "cox") == 0 && memmem(line, n, "SIGKILL", 7))
        w->was_killed = true;
}

static void look(void *ctx)
{
    struct world *w = ctx;
    if (supervisor_count(w->s, UP_WORKER) == 0 && !supervisor_runs(w->s, 1))
        loop_stop(w->loop);
}

static void a_process_that_ignores_sigterm_is_killed(void **state)
{
    struct up_child child = {
        .role = UP_WORKER,
        .model = 1,
        .name = "worker-a-0",
        .argv = {"/bin/sh", "-c", "trap '' TERM; echo up; exec sleep 600", NULL}};
    const struct up_plan plan = {.children = &child, .n_children = 1, .n_workers = 1};
    struct error err = {0};
    struct world w = {0};
    assert_int_equal(loop_new(&w.loop, &err), STATUS_OK);
    const struct supervisor_options o = {.loop = w.loop,
                                         .plan = &plan,
                                         .leave_ms = 20,
                                         .quiet = true,
                                         .on_line = on_line,
                                         .ctx = &w};
    assert_int_equal(supervisor_start(&o, &w.s, &err), STATUS_OK);
    struct loop_timer *timer = loop_timer_start(w.loop, 5, 5, look, &w);
    loop_run(w.loop);
    loop_timer_stop(timer);
    assert_true(w.was_killed);
    assert_true(supervisor_forget_model(w.s, 1));
    supervisor_free(w.s);
    loop_free(w.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_ignores_sigterm_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
