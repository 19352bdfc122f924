/* Tests the colours of the lines of `cox status`, and that colouring changes nothing else. */
#include "cli/view/status_paint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct {
    const char *line, *color; /* color: the expected colour; NULL = no colour */
} cases[] = {
    {"======== Cluster status: healthy ========", "\033[1;32m"},
    {"======== Cluster status: NOT HEALTHY ========", "\033[1;31m"},
    {"======== Cluster status: resting, workers start when a request arrives ========", "\033[33m"},
    {"WARNING: no replica serves", "\033[33m"},
    {"Usage", "\033[1m"},
    {"Recent failures:", "\033[1m"},
    {"replica state      role     epoch    TPxPP ", "\033[1m"},
    {"00000000000000aa suspect       0     0", "\033[1;31m"},
    {"0      waiting    both     0.0", "\033[33m"},
    {"00000000000000aa ready         0     0", NULL},
    {"  4 running, 1 waiting", NULL},
    {"  0 spare", NULL},
    {"", NULL},
};

static void test_lines(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char plain[128], want[160];
        struct strbuf b;
        strbuf_init(&b, 0);
        snprintf(plain, sizeof plain, "%s\n", cases[i].line);
        if (cases[i].color)
            snprintf(want, sizeof want, "%s%s\033[0m\n", cases[i].color, cases[i].line);
        else
            snprintf(want, sizeof want, "%s\n", cases[i].line);
        status_paint(str_from(plain), &b);
        if (b.len != strlen(want) || memcmp(b.ptr, want, b.len) != 0)
            fail_msg("\"%s\" became \"%.*s\"", cases[i].line, (int)b.len, b.ptr);
        strbuf_fini(&b);
    }
}

static void test_no_last_newline(void **state)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    status_paint(str_from("a\n\nUsage"), &b);
    assert_int_equal(b.len, strlen("a\n\n\033[1mUsage\033[0m"));
    assert_memory_equal(b.ptr, "a\n\n\033[1mUsage\033[0m", b.len);
    strbuf_fini(&b);
}

static void test_only_on_a_terminal(void **state)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_false(status_paint_wanted(fds[1], NULL, "xterm"));
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_no_last_newline),
        cmocka_unit_test(test_only_on_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
