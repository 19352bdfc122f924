#include "common/model/files/guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/model/files/map.h"

enum { PAGES = 4 };

/* Runs `body` in a child process with the guard installed and stderr in a pipe. `text` gets the
 * child's output. */
static int run_child(void (*body)(const char *), const char *path, char *text, size_t size)
{
    int fds[2], status = 0;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        /* a sanitizer has its own handler, which must not run here */
        (void)signal(SIGBUS, SIG_DFL);
        file_guard_install();
        body(path);
        _exit(0);
    }
    close(fds[1]);
    size_t used = 0;
    for (ssize_t n; used < size - 1 && (n = read(fds[0], text + used, size - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void cut_and_touch(const char *path)
{
    struct file_map m;
    struct error err;
    if (file_map_open(path, &m, &err) != STATUS_OK || truncate(path, 1) != 0)
        _exit(9);
    const volatile uint8_t *bytes = m.bytes;
    (void)bytes[0];
    (void)bytes[m.n_bytes - 1];
}

static void raise_it(const char *path)
{
    (void)raise(SIGBUS);
}

static void test_a_file_cut_short(void **state)
{
    char path[] = "/tmp/file_guard_XXXXXX", text[1024], want[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, PAGES * sysconf(_SC_PAGESIZE)), 0);
    close(fd);
    int status = run_child(cut_and_touch, path, text, sizeof text);
    unlink(path);
    snprintf(want, sizeof want, "%s: this file became shorter", path);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_memory_equal(text, want, strlen(want)); /* the text must begin with this line */
    assert_int_equal(text[strlen(text) - 1], '\n');
}

static void test_another_sigbus_is_a_crash(void **state)
{
    char text[1024];
    int status = run_child(raise_it, "", text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_cut_short),
        cmocka_unit_test(test_another_sigbus_is_a_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
