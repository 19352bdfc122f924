#include "common/host/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool yes(const void *arg)
{
    return arg == NULL;
}

static bool no(const void *arg)
{
    return arg != NULL;
}

static void test_the_main_thread_has_the_id_of_the_process(void **state)
{
    (void)state;
    assert_int_equal(kernel_thread_id(), getpid());
}

/* Exit status of a child that closes 300 to 301 of the descriptors 300 to 302. */
static int close_two_of_three(void)
{
    for (int fd = 300; fd <= 302; fd++)
        if (dup2(STDIN_FILENO, fd) != fd)
            return 1;
    kernel_close_range(300, 301);
    return fcntl(300, F_GETFD) == -1 && fcntl(301, F_GETFD) == -1 && fcntl(302, F_GETFD) != -1 ? 0
                                                                                               : 2;
}

static void test_a_range_of_descriptors_is_closed(void **state)
{
    (void)state;
    const pid_t pid = fork();
    if (pid == 0)
        _exit(close_two_of_three());
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    kernel_close_range(7, 6); /* an empty range */
}

static void test_only_a_confirmed_process_gets_the_signal(void **state)
{
    (void)state;
    const pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    assert_int_equal(kernel_signal_if(pid, SIGKILL, no, NULL), 0);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    assert_int_equal(kernel_signal_if(pid, SIGTERM, yes, NULL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    assert_int_equal(kernel_signal_if(pid, SIGTERM, yes, NULL), 0); /* it has ended: no error */
}

static void test_an_invalid_signal_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(kernel_signal_if(getpid(), 12345, yes, NULL), -1);
    assert_int_equal(errno, EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_main_thread_has_the_id_of_the_process),
        cmocka_unit_test(test_a_range_of_descriptors_is_closed),
        cmocka_unit_test(test_only_a_confirmed_process_gets_the_signal),
        cmocka_unit_test(test_an_invalid_signal_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
