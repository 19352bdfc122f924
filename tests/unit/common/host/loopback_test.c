#include "common/host/loopback.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct {
    struct str host;
    bool is_loopback;
} hosts[] = {
    {STR("localhost"), true},
    {STR("LocalHost"), true},
    {STR("127.0.0.1"), true},
    {STR("127.255.3.4"), true},
    {STR("::1"), true},
    {STR("[::1]"), true},
    {STR("0:0:0:0:0:0:0:1"), true},
    {STR(""), false},
    {STR("[]"), false},
    {STR("["), false},
    {STR("127."), false},
    {STR("127.1"), false},
    {STR("127.evil.example"), false},
    {STR("127.0.0.1.evil.example"), false},
    {STR("127.0.0.1 "), false},
    {STR("127.0.0.1\0.evil"), false},
    {STR("127.0.0.256"), false},
    {STR("0127.0.0.1"), false},
    {STR("128.0.0.1"), false},
    {STR("0.0.0.0"), false},
    {STR("10.127.0.0"), false},
    {STR("localhost.evil.example"), false},
    {STR("localhost."), false},
    {STR("notlocalhost"), false},
    {STR("[localhost]"), false},
    {STR("[127.0.0.1]"), false},
    {STR("[::1"), false},
    {STR("::1]"), false},
    {STR("::"), false},
    {STR("::2"), false},
    {STR("::ffff:127.0.0.1"), false},
    {STR("::1%lo"), false},
    {STR("0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0001"), false},
};

static void test_hosts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        if (host_is_loopback(hosts[i].host) != hosts[i].is_loopback)
            fail_msg("\"" STR_FMT "\": %s was expected", STR_ARG(hosts[i].host),
                     hosts[i].is_loopback ? "loopback" : "not loopback");
}

static const struct {
    struct str authority;
    const char *host;
} authorities[] = {
    {STR("localhost"), "localhost"},
    {STR("localhost:8265"), "localhost"},
    {STR("localhost:"), "localhost"}, /* the port may be empty (RFC 3986) */
    {STR("127.0.0.1:8265"), "127.0.0.1"},
    {STR("[::1]"), "[::1]"},
    {STR("[::1]:8265"), "[::1]"},
    {STR("127.0.0.1.evil.example:80"), "127.0.0.1.evil.example"},
    {STR(""), ""},
    {STR(":8265"), ""},
    {STR("["), ""},
    {STR("[::1"), ""},
    {STR("[::1]evil.example"), ""},
    {STR("[::1].evil.example:80"), ""},
    {STR("::1"), ""}, /* an IPv6 address must have brackets */
    {STR("localhost:80.evil.example"), ""},
    {STR("localhost:80:80"), ""},
    {STR("localhost:@evil"), ""},
};

static void test_authorities(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof authorities / sizeof authorities[0]; i++) {
        struct str got = authority_host(authorities[i].authority);
        if (!str_eq_c(got, authorities[i].host))
            fail_msg("\"" STR_FMT "\" gave \"" STR_FMT "\" for \"%s\"",
                     STR_ARG(authorities[i].authority), STR_ARG(got), authorities[i].host);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_authorities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
