#include "common/http/client/roots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char root[] = "/tmp/cox-roots-XXXXXX";

static void make(const char *path)
{
    char whole[ROOTS_PATH_MAX];
    (void)snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *p = whole + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        (void)mkdir(whole, 0700);
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
}

static void test_no_file_is_found(void **state)
{
    (void)state;
    char path[ROOTS_PATH_MAX];
    assert_null(roots_find(root, path));
}

static void test_the_files_of_distributions_are_found(void **state)
{
    (void)state;
    char path[ROOTS_PATH_MAX];
    make("/etc/pki/tls/certs/ca-bundle.crt");
    assert_non_null(roots_find(root, path));
    assert_string_equal(path + strlen(root), "/etc/pki/tls/certs/ca-bundle.crt");
    make("/etc/ssl/certs/ca-certificates.crt");
    assert_non_null(roots_find(root, path));
    assert_string_equal(path + strlen(root), "/etc/ssl/certs/ca-certificates.crt");
}

static void test_a_path_that_is_too_long_is_no_file(void **state)
{
    (void)state;
    char path[ROOTS_PATH_MAX];
    char *longer = malloc(2 * ROOTS_PATH_MAX);
    assert_non_null(longer);
    memset(longer, 'a', 2 * ROOTS_PATH_MAX - 1);
    longer[2 * ROOTS_PATH_MAX - 1] = '\0';
    assert_null(roots_find(longer, path));
    free(longer);
}

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    static const char *const paths[] = {"/etc/pki/tls/certs/ca-bundle.crt",
                                        "/etc/pki/tls/certs",
                                        "/etc/pki/tls",
                                        "/etc/pki",
                                        "/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/ssl/certs",
                                        "/etc/ssl",
                                        "/etc",
                                        ""};
    char whole[ROOTS_PATH_MAX];
    int rc = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        (void)snprintf(whole, sizeof whole, "%s%s", root, paths[i]);
        rc |= remove(whole);
    }
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_file_is_found),
        cmocka_unit_test(test_the_files_of_distributions_are_found),
        cmocka_unit_test(test_a_path_that_is_too_long_is_no_file),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
