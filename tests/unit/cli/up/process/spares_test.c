/* Tests spare processes with a shell script in the place of cox-worker. The script prints its
 * number, says that it waits and that it has taken its message, prints "up" and its options, and
 * then the message that it is given, one word a line. It has no children, which would keep its
 * socket open when it is killed. */
#include "cli/up/process/spares.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char script[] = "#!/bin/sh\n"
                             "shift; echo $$; printf WT >&0; echo \"up $*\"\n"
                             "exec tr '\\0' '\\n'\n";

struct world {
    struct loop *loop;
    struct spares *spares;
    char program[64], lines[2048], words[2048];
    uint32_t n_up, n_ended;
    int spare_pid; /* process of the newest spare */
    int pid;       /* process that was taken */
};

static const char *const *argv_of(struct world *w, const char *device)
{
    static const char *argv[10];
    const char *const all[] = {w->program, "--model", "m",           "--device", device,
                               "--tp",     "1",       "--numa-node", "2",        NULL};
    memcpy(argv, all, sizeof all);
    return argv;
}

/* Spares write here. */
static void on_line(void *ctx, const char *line, size_t n)
{
    struct world *w = ctx;
    const size_t used = strlen(w->lines);
    if (n > 0 && line[0] >= '0' && line[0] <= '9') {
        w->spare_pid = atoi(line);
        return;
    }
    snprintf(w->lines + used, sizeof w->lines - used, "%.*s\n", (int)n, line);
    w->n_up += n > 3 && memcmp(line, "up ", 3) == 0;
    w->n_ended += memmem(line, n, "has ended", 9) != NULL;
    loop_stop(w->loop);
}

/* The worker that took a spare writes here. */
static void on_word(void *ctx, struct loop_child *c, const char *line, size_t n, bool is_stderr)
{
    struct world *w = ctx;
    const size_t used = strlen(w->words);
    snprintf(w->words + used, sizeof w->words - used, "%.*s\n", (int)n, line);
}

static void on_exit_of(void *ctx, struct loop_child *c, int64_t status, int term_signal)
{
    struct world *w = ctx;
    assert_int_equal(status, 0);
    assert_int_equal(loop_child_pid(c), w->pid);
    loop_child_free(c);
    w->pid = 0;
    loop_stop(w->loop);
}

static struct loop_child *take(struct world *w, const char *device)
{
    return spares_take(w->spares, &(struct loop_child_options){.argv = argv_of(w, device),
                                                               .on_line = on_word,
                                                               .on_exit = on_exit_of,
                                                               .ctx = w});
}

static int begin(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    snprintf(w->program, sizeof w->program, "/tmp/spares_test.XXXXXX");
    const int fd = mkstemp(w->program);
    assert_int_equal(write(fd, script, sizeof script - 1), sizeof script - 1);
    assert_int_equal(fchmod(fd, 0700), 0);
    close(fd);
    assert_int_equal(loop_new(&w->loop, NULL), STATUS_OK);
    w->spares = spares_new(&(struct spares_options){.loop = w->loop,
                                                    .n_each = 1,
                                                    .calm_ms = 1,
                                                    .answer_ms = 5000,
                                                    .on_line = on_line,
                                                    .ctx = w});
    *state = w;
    return 0;
}

static int end(void **state)
{
    struct world *w = *state;
    spares_stop(w->spares);
    spares_free(w->spares);
    loop_free(w->loop);
    unlink(w->program);
    free(w);
    return 0;
}

static void run_until_up(struct world *w, uint32_t n)
{
    while (w->n_up < n)
        loop_run(w->loop);
}

static void test_a_worker_takes_a_spare(void **state)
{
    struct world *w = *state;
    assert_null(take(w, "cpu")); /* none is expected */
    spares_expect(w->spares, argv_of(w, "cpu"));
    spares_expect(w->spares, argv_of(w, "cpu")); /* the same kind */
    run_until_up(w, 1);
    assert_string_equal(w->lines, "up --device cpu --numa-node 2\n");
    assert_null(take(w, "cuda"));
    struct loop_child *c = take(w, "cpu");
    assert_non_null(c);
    w->pid = loop_child_pid(c);
    assert_int_equal(w->pid, w->spare_pid);
    assert_null(take(w, "cpu")); /* the next one is not made yet */
    while (w->pid)
        loop_run(w->loop);
    assert_non_null(strstr(w->words, "\n--model\nm\n--device\ncpu\n--tp\n1\n--numa-node\n2\n"));
    run_until_up(w, 2);
    assert_non_null(take(w, "cpu"));
    assert_int_equal(w->n_ended, 0);
}

static void test_a_spare_that_ends_is_replaced(void **state)
{
    struct world *w = *state;
    siginfo_t info;
    spares_expect(w->spares, argv_of(w, "cpu"));
    run_until_up(w, 1);
    const int killed = w->spare_pid;
    assert_int_equal(kill(killed, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)killed, &info, WEXITED | WNOWAIT), 0);
    assert_null(take(w, "cpu")); /* the supervisor does not know yet that it has ended */
    run_until_up(w, 2);
    assert_int_equal(w->n_ended, 1);
    assert_int_not_equal(w->spare_pid, killed);
    assert_non_null(take(w, "cpu"));
}

/* The script of this test does not read, as a stopped process. */
static void test_a_spare_that_does_not_answer_is_killed(void **state)
{
    static const char hanging[] = "#!/bin/sh\necho $$; printf W >&0; echo up 1; exec sleep 60\n";
    struct world *w = *state;
    FILE *f = fopen(w->program, "w");
    assert_true(f && fputs(hanging, f) >= 0 && fclose(f) == 0);
    spares_free(w->spares);
    w->spares = spares_new(&(struct spares_options){
        .loop = w->loop, .n_each = 1, .calm_ms = 1, .answer_ms = 1, .on_line = on_line, .ctx = w});
    spares_expect(w->spares, argv_of(w, "cpu"));
    run_until_up(w, 1);
    assert_null(take(w, "cpu"));
    while (w->n_ended == 0)
        loop_run(w->loop);
    assert_non_null(strstr(w->lines, "did not take its command line"));
}

/* The script of this test ends at once with the exit code of a configuration error. */
static void test_spares_that_cannot_start_are_given_up(void **state)
{
    static const char broken[] = "#!/bin/sh\nexit 2\n";
    struct world *w = *state;
    FILE *f = fopen(w->program, "w");
    assert_true(f && fputs(broken, f) >= 0 && fclose(f) == 0);
    spares_expect(w->spares, argv_of(w, "cpu"));
    while (w->n_ended == 0)
        loop_run(w->loop);
    assert_non_null(strstr(w->lines, "No more spares"));
    assert_null(take(w, "cpu"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_worker_takes_a_spare, begin, end),
        cmocka_unit_test_setup_teardown(test_a_spare_that_ends_is_replaced, begin, end),
        cmocka_unit_test_setup_teardown(test_a_spare_that_does_not_answer_is_killed, begin, end),
        cmocka_unit_test_setup_teardown(test_spares_that_cannot_start_are_given_up, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
