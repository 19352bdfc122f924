#include "gateway/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/cox-auth-XXXXXX";

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_keys(void **state)
{
    static const struct {
        const char *header;
        bool ok;
        const char *tenant;
    } cases[] = {
        {"Bearer flag-key", true, NULL}, {"bearer  flag-key ", true, NULL},
        {"Bearer key-a", true, "acme"},  {"Bearer key-a2", true, "acme"},
        {"Bearer key-b", true, NULL},    {"Bearer key-c", false, ""},
        {"Bearer ", false, ""},          {"Bearer key-", false, ""},
        {"Bearer key-aa", false, ""},    {"Basic flag-key", false, ""},
        {"flag-key", false, ""},         {"", false, ""},
        {"Bearer # comment", false, ""},
    };
    struct auth a;
    struct error err = {0};
    uint64_t tenants[sizeof cases / sizeof *cases];
    const char *flag[] = {"flag-key"};
    struct option_list keys = {flag, 1};
    write_file("# comment\n\nkey-a acme\nkey-a2 acme\n  key-b\n");
    assert_int_equal(auth_init(&a, &keys, path, &err), STATUS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t tenant = 99;
        bool ok = auth_check(&a, str_from(cases[i].header), &tenant);
        uint64_t want = auth_tenant_id(str_from(cases[i].tenant ? cases[i].tenant : ""));
        if (ok != cases[i].ok || (cases[i].tenant && tenant != want))
            fail_msg("\"%s\": %d", cases[i].header, ok);
        tenants[i] = tenant;
    }
    /* a key without a name is a tenant of its own */
    assert_true(tenants[0] == tenants[1] && tenants[0] != 0 && tenants[4] != 0);
    assert_true(tenants[0] != tenants[4] && tenants[0] != tenants[2] && tenants[4] != tenants[2]);
    auth_fini(&a);
}

static void test_no_keys(void **state)
{
    struct auth a;
    uint64_t tenant;
    struct option_list none = {0};
    assert_int_equal(auth_init(&a, &none, NULL, NULL), STATUS_OK);
    assert_true(auth_check(&a, STR(""), &tenant));
    auth_fini(&a);
}

static void test_bad_files(void **state)
{
    static const char *const bad[] = {"", "# only\n", "k t extra\n", "k a\nk b\n"};
    struct option_list none = {0};
    struct auth a;
    struct error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(bad[i]);
        assert_int_not_equal(auth_init(&a, &none, path, &err), STATUS_OK);
        assert_non_null(strstr(err.text, path));
        assert_null(strstr(err.text, "extra")); /* a key never shows in a message */
    }
    assert_int_equal(auth_init(&a, &none, "/nonexistent/keys", &err), STATUS_NOT_FOUND);
    const char *empty[] = {""};
    struct option_list keys = {empty, 1};
    assert_int_equal(auth_init(&a, &keys, NULL, &err), STATUS_INVALID);
}

static int make_file(void **state)
{
    int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0;
}

static int remove_file(void **state)
{
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_no_keys),
        cmocka_unit_test(test_bad_files),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
