#include "common/host/own_address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_the_way_to_this_host(void **state)
{
    static const struct {
        const char *to, *want;
        enum status status;
    } cases[] = {
        {"127.0.0.1:7000", "127.0.0.1", STATUS_OK},
        /* the routing table prefers this source address */
        {"127.0.0.9:1", "127.0.0.1", STATUS_OK},
        {"[127.0.0.1]:7000", "127.0.0.1", STATUS_OK},
        {"127.0.0.1", "", STATUS_INVALID},
        {"127.0.0.1:", "", STATUS_INVALID},
        {":7000", "", STATUS_INVALID},
        {"[]:7000", "", STATUS_IO},
        {"127.0.0.1:http", "", STATUS_INVALID},
        {"", "", STATUS_INVALID},
        {"no-such-host.invalid:7000", "", STATUS_IO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[OWN_ADDRESS_MAX];
        struct error err = {0};
        enum status s = own_address_for(cases[i].to, out, &err);
        if (s != cases[i].status || strcmp(out, cases[i].want) != 0)
            fail_msg("\"%s\": %s, \"%s\" %s", cases[i].to, status_name(s), out, err.text);
        if (s != STATUS_OK)
            assert_true(strlen(err.text) > 0);
    }
}

static void test_ipv6_where_there_is_one(void **state)
{
    char out[OWN_ADDRESS_MAX];
    struct error err = {0};
    if (own_address_for("[::1]:7000", out, &err) == STATUS_OK)
        assert_string_equal(out, "::1");
}

static void test_a_name_too_long(void **state)
{
    char to[400], out[OWN_ADDRESS_MAX];
    struct error err = {0};
    memset(to, 'a', sizeof to);
    strcpy(to + 300, ":7000");
    assert_int_equal(own_address_for(to, out, &err), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_way_to_this_host),
        cmocka_unit_test(test_ipv6_where_there_is_one),
        cmocka_unit_test(test_a_name_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
