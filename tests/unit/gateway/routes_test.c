#include "gateway/routes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_find(void **state)
{
    static const struct {
        const char *method, *path;
        enum route_result want;
        const char *allow;
    } cases[] = {
        {"POST", "/v1/completions", ROUTE_FOUND, ""},
        {"GET", "/v1/completions", ROUTE_METHOD_NOT_ALLOWED, "POST"},
        {"POST", "/v1/chat/completions", ROUTE_FOUND, ""},
        {"POST", "/v1/chat/completions/", ROUTE_NOT_FOUND, ""},
        {"POST", "/tokenize", ROUTE_FOUND, ""},
        {"GET", "/detokenize", ROUTE_METHOD_NOT_ALLOWED, "POST"},
        {"GET", "/v1/models", ROUTE_FOUND, ""},
        {"HEAD", "/v1/models", ROUTE_FOUND, ""},
        {"GET", "/v1/models/google/gemma", ROUTE_FOUND, ""},
        {"GET", "/v1/models/", ROUTE_NOT_FOUND, ""},
        {"DELETE", "/v1/models/x", ROUTE_METHOD_NOT_ALLOWED, "GET"},
        {"POST", "/ping", ROUTE_FOUND, ""},
        {"PUT", "/ping", ROUTE_METHOD_NOT_ALLOWED, "GET, POST"},
        {"GET", "/health", ROUTE_FOUND, ""},
        {"GET", "/metrics", ROUTE_FOUND, ""},
        {"GET", "/", ROUTE_NOT_FOUND, ""},
        {"GET", "", ROUTE_NOT_FOUND, ""},
        {"get", "/health", ROUTE_METHOD_NOT_ALLOWED, "GET"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct route *row;
        char allow[64];
        enum route_result got =
            routes_find(str_from(cases[i].method), str_from(cases[i].path), &row, allow);
        if (got != cases[i].want || strcmp(allow, cases[i].allow) != 0)
            fail_msg("%s %s: %d \"%s\"", cases[i].method, cases[i].path, (int)got, allow);
    }
}

/* Everything under /v1 needs a key, whatever is added. */
static void test_access(void **state)
{
    static const char *const open[] = {"/health",  "/ready", "/ping",
                                       "/version", "/livez", "/readyz"};
    const struct route *row;
    char allow[64];
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        assert_int_equal(routes_find(STR("GET"), str_from(open[i]), &row, allow), ROUTE_FOUND);
        assert_int_equal(row->access, ACCESS_OPEN);
    }
    assert_int_equal(routes_find(STR("GET"), STR("/v1/models"), &row, allow), ROUTE_FOUND);
    assert_int_equal(row->access, ACCESS_KEY);
    assert_int_equal(routes_find(STR("POST"), STR("/v1/completions"), &row, allow), ROUTE_FOUND);
    assert_int_equal(row->access, ACCESS_KEY);
    static const char *const keyed[] = {"/tokenize", "/detokenize"};
    for (size_t i = 0; i < sizeof keyed / sizeof *keyed; i++) {
        assert_int_equal(routes_find(STR("POST"), str_from(keyed[i]), &row, allow), ROUTE_FOUND);
        assert_int_equal(row->access, ACCESS_KEY);
    }
    assert_int_equal(routes_find(STR("GET"), STR("/metrics"), &row, allow), ROUTE_FOUND);
    assert_int_equal(row->access, ACCESS_METRICS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_find), cmocka_unit_test(test_access)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
