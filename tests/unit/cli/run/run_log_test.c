#include "cli/run/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_BYTES = 16384 + 1000, TRIES = 600 };

static void path_of(const char *folder, const char *name, char out[128])
{
    snprintf(out, 128, "%s/%s", folder, name);
}

static void remove_folder(const char *folder)
{
    char path[128];
    path_of(folder, "log", path);
    (void)unlink(path);
    path_of(folder, "log.1", path);
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static long long size_of(const char *folder, const char *name)
{
    char path[128];
    struct stat st;
    path_of(folder, name, path);
    return stat(path, &st) == 0 ? (long long)st.st_size : -1;
}

/* When the log's folder is removed, no new file can be created. Lines are lost then, but the
 * last line is kept, and the log continues when the folder exists again. */
static void test_a_log_that_cannot_be_made_anew(void **state)
{
    char folder[] = "/tmp/coxrunlog-XXXXXX", line[1000];
    struct run_log l;
    struct error err;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(run_log_open(&l, folder, -1, &err), STATUS_OK);
    l.max_bytes = MAX_BYTES;
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    run_log_write(&l, line, sizeof line);
    assert_int_equal(size_of(folder, "log"), sizeof line);
    remove_folder(folder);
    run_log_write(&l, line, sizeof line); /* the log's file is now full */
    assert_int_equal(l.fd, -1);
    run_log_write(&l, "lost\n", 5);
    assert_string_equal(l.last, "lost");
    assert_int_equal(mkdir(folder, 0700), 0);
    for (int i = 0; i < TRIES && size_of(folder, "log") < 5; i++) {
        usleep(20000);
        run_log_write(&l, "back\n", 5);
    }
    assert_int_equal(size_of(folder, "log"), 5);
    run_log_close(&l);
    run_log_write(&l, "late\n", 5);
    assert_int_equal(size_of(folder, "log"), 5);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_log_that_cannot_be_made_anew)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
