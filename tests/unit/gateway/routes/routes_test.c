/* Tests the table of routes: how a method and a path find their row, and which callers may use
 * it. `routes_find` and `access_decide` are pure functions. The tables below hold the expected
 * verdict for every kind of route, key and address. Invariant: a route is closed unless its row
 * opens it. */
#include "gateway/routes/access.h"
#include "gateway/routes/routes.h"

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
        {"POST", "/v1/messages", ROUTE_FOUND, ""},
        {"POST", "/v1/messages/count_tokens", ROUTE_FOUND, ""},
        {"POST", "/tokenize", ROUTE_FOUND, ""},
        {"GET", "/detokenize", ROUTE_METHOD_NOT_ALLOWED, "POST"},
        {"GET", "/v1/models", ROUTE_FOUND, ""},
        {"HEAD", "/v1/models", ROUTE_FOUND, ""},
        {"GET", "/v1/models/google/gemma", ROUTE_FOUND, ""},
        {"GET", "/v1/models/", ROUTE_NOT_FOUND, ""},
        {"POST", "/v1/responses", ROUTE_FOUND, ""},
        {"GET", "/v1/responses/x", ROUTE_FOUND, ""},
        {"POST", "/v1/responses/x/cancel", ROUTE_FOUND, ""},
        {"POST", "/v1/responses//cancel", ROUTE_NOT_FOUND, ""},
        {"POST", "/v1/responses/x/cancelled", ROUTE_NOT_FOUND, ""},
        {"GET", "/v1/files/x/content", ROUTE_FOUND, ""},
        {"GET", "/v1/files/x/y", ROUTE_NOT_FOUND, ""},
        {"PUT", "/v1/files/x", ROUTE_METHOD_NOT_ALLOWED, "GET, DELETE"},
        {"DELETE", "/v1/files/x/content", ROUTE_METHOD_NOT_ALLOWED, "GET"},
        {"GET", "/openapi.json", ROUTE_FOUND, ""},
        {"DELETE", "/v1/models/x", ROUTE_METHOD_NOT_ALLOWED, "GET"},
        {"POST", "/ping", ROUTE_FOUND, ""},
        {"PUT", "/ping", ROUTE_METHOD_NOT_ALLOWED, "GET, POST"},
        {"GET", "/execution-parameters", ROUTE_FOUND, ""},
        {"POST", "/execution-parameters", ROUTE_METHOD_NOT_ALLOWED, "GET"},
        {"POST", "/invocations", ROUTE_FOUND, ""},
        {"GET", "/invocations", ROUTE_METHOD_NOT_ALLOWED, "POST"},
        {"POST", "/predictions/model", ROUTE_FOUND, ""},
        {"POST", "/predictions/", ROUTE_NOT_FOUND, ""},
        {"POST", "/endpoints/e/invocations", ROUTE_FOUND, ""},
        {"GET", "/endpoints/e/invocations", ROUTE_METHOD_NOT_ALLOWED, "POST"},
        {"POST", "/endpoints", ROUTE_NOT_FOUND, ""},
        {"GET", "/health", ROUTE_FOUND, ""},
        {"GET", "/metrics", ROUTE_FOUND, ""},
        {"GET", "/", ROUTE_FOUND, ""},
        {"HEAD", "/", ROUTE_FOUND, ""},
        {"POST", "/", ROUTE_METHOD_NOT_ALLOWED, "GET"},
        {"GET", "/chat/main.js", ROUTE_FOUND, ""},
        {"GET", "/chat/", ROUTE_NOT_FOUND, ""},
        {"GET", "", ROUTE_NOT_FOUND, ""},
        {"GET", "/admin/models", ROUTE_FOUND, ""},
        {"PATCH", "/admin/models/org/x", ROUTE_FOUND, ""},
        {"POST", "/admin/models/x", ROUTE_METHOD_NOT_ALLOWED, "PATCH, PUT, DELETE"},
        {"get", "/health", ROUTE_METHOD_NOT_ALLOWED, "GET"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct http_route *row;
        char allow[64];
        enum route_result got =
            routes_find(str_from(cases[i].method), str_from(cases[i].path), &row, allow);
        if (got != cases[i].want || strcmp(allow, cases[i].allow) != 0)
            fail_msg("%s %s: %d \"%s\"", cases[i].method, cases[i].path, (int)got, allow);
    }
}

/* Returns the verdict for a caller on a route: "ok" or the HTTP status. `sent` holds k for a
 * user's key and a for the admin key. `keys` and `admin_key` say which of them are configured.
 * The expected tables are written by hand, without the rows' own fields. */
static const char *verdict(const struct http_route *row, bool keys, bool admin_key,
                           const char *sent, bool own_address, bool on_admin_address)
{
    static const char *const words[] = {[ACCESS_GRANTED] = "ok",
                                        [ACCESS_WANTS_KEY] = "401",
                                        [ACCESS_NOT_HERE] = "404",
                                        [ACCESS_NO_ADMIN_KEY] = "403"};
    const struct access_rules r = {
        .keys = keys, .admin_key = admin_key, .admin_address = own_address};
    const struct access_caller c = {.on_admin_address = on_admin_address,
                                    .has_key = keys && strchr(sent, 'k'),
                                    .has_admin_key = admin_key && strchr(sent, 'a')};
    return words[access_decide(&r, &c, row)];
}

static bool is_one_of(const char *const *list, const char *path)
{
    for (; *list; list++)
        if (strcmp(*list, path) == 0)
            return true;
    return false;
}

enum { OPEN, BOTH, ADMIN, USER, METRICS };
/* Each row lists the verdicts without a key, with a user's key, and with the admin key. In these
 * tables one address serves all routes. */
static const char *const keys_and_admin[][3] = {[OPEN] = {"ok", "ok", "ok"},
                                                [BOTH] = {"401", "ok", "ok"},
                                                [ADMIN] = {"401", "401", "ok"},
                                                [METRICS] = {"401", "ok", "ok"},
                                                [USER] = {"401", "ok", "401"}};
static const char *const keys_only[][3] = {[OPEN] = {"ok", "ok", "ok"},
                                           [BOTH] = {"401", "ok", "401"},
                                           [ADMIN] = {"401", "403", "401"},
                                           [METRICS] = {"401", "ok", "401"},
                                           [USER] = {"401", "ok", "401"}};
static const char *const admin_only[][3] = {[OPEN] = {"ok", "ok", "ok"},
                                            [BOTH] = {"ok", "ok", "ok"},
                                            [ADMIN] = {"401", "401", "ok"},
                                            [METRICS] = {"ok", "ok", "ok"},
                                            [USER] = {"ok", "ok", "ok"}};
/* `away` holds the verdicts at the first of two addresses. */
static const char *const away[][3] = {[OPEN] = {"ok", "ok", "ok"},
                                      [BOTH] = {"401", "ok", "ok"},
                                      [ADMIN] = {"401", "404", "404"},
                                      [METRICS] = {"401", "ok", "ok"},
                                      [USER] = {"401", "ok", "401"}};
/* The next two tables hold the verdicts at the first of two addresses: without user keys, and
 * without any keys. */
static const char *const away_admin[][3] = {[OPEN] = {"ok", "ok", "ok"},
                                            [BOTH] = {"ok", "ok", "ok"},
                                            [ADMIN] = {"404", "404", "404"},
                                            [METRICS] = {"401", "401", "ok"},
                                            [USER] = {"ok", "ok", "ok"}};
static const char *const away_bare[][3] = {[OPEN] = {"ok", "ok", "ok"},
                                           [BOTH] = {"ok", "ok", "ok"},
                                           [ADMIN] = {"404", "404", "404"},
                                           [METRICS] = {"404", "404", "404"},
                                           [USER] = {"ok", "ok", "ok"}};
static const char *const own_bare[][3] = {[OPEN] = {"ok", "ok", "ok"},
                                          [BOTH] = {"ok", "ok", "ok"},
                                          [ADMIN] = {"403", "403", "403"},
                                          [METRICS] = {"ok", "ok", "ok"},
                                          [USER] = {"404", "404", "404"}};
/* `own` holds the verdicts at the second of two addresses. */
static const char *const own[][3] = {[OPEN] = {"ok", "ok", "ok"},
                                     [BOTH] = {"401", "401", "ok"},
                                     [ADMIN] = {"401", "401", "ok"},
                                     [METRICS] = {"401", "401", "ok"},
                                     [USER] = {"401", "401", "404"}};
static const struct {
    const char *name;
    const char *const (*want)[3];
    bool keys, admin_key, own_address, on_admin_address;
} worlds[] = {{"keys and admin key", keys_and_admin, true, true, false, false},
              {"keys", keys_only, true, false, false, false},
              {"admin key", admin_only, false, true, false, false},
              {"two addresses, first", away, true, true, true, false},
              {"two addresses, admin key, first", away_admin, false, true, true, false},
              {"two addresses, admin key, second", own, false, true, true, true},
              {"two addresses, no key, first", away_bare, false, false, true, false},
              {"two addresses, no key, second", own_bare, false, false, true, true},
              {"two addresses, second", own, true, true, true, true}};

static void test_every_route_with_every_key(void **state)
{
    static const char *const open[] = {"/health", "/ready",  "/accepting", "/ping",
                                       "/",       "/chat/*", NULL};
    static const char *const both[] = {"/livez", "/readyz", "unknown", NULL};
    static const char *const admin[] = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter",
                                        "/admin/models",         "/admin/models/**",
                                        "/admin/routes/**",      NULL};
    static const char *const sent[] = {"", "k", "a"};
    size_t n;
    const struct http_route *rows = routes_all(&n);
    assert_true(n >= 14);
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        for (size_t i = 0; i <= n; i++)
            for (size_t k = 0; k < 3; k++) {
                const char *path = i < n ? rows[i].path : "unknown";
                int kind = is_one_of(open, path)           ? OPEN
                           : is_one_of(both, path)         ? BOTH
                           : is_one_of(admin, path)        ? ADMIN
                           : strcmp(path, "/metrics") == 0 ? METRICS
                                                           : USER;
                bool probe = strcmp(path, "/livez") == 0 || strcmp(path, "/readyz") == 0;
                const char *want =
                    probe && worlds[w].on_admin_address ? "ok" : worlds[w].want[kind][k];
                const char *got =
                    verdict(i < n ? &rows[i] : NULL, worlds[w].keys, worlds[w].admin_key, sent[k],
                            worlds[w].own_address, worlds[w].on_admin_address);
                if (strcmp(got, want) != 0)
                    fail_msg("%s, \"%s\" on %s: %s, not %s", worlds[w].name, sent[k], path, got,
                             want);
            }
}

static void test_public_metrics(void **state)
{
    const struct access_rules r = {.keys = true, .metrics_public = true};
    const struct access_caller nobody = {0};
    const struct http_route *row;
    char allow[64];
    assert_int_equal(routes_find(STR("GET"), STR("/metrics"), &row, allow), ROUTE_FOUND);
    assert_int_equal(access_decide(&r, &nobody, row), ACCESS_GRANTED);
    /* other paths stay closed */
    assert_int_equal(access_decide(&r, &nobody, NULL), ACCESS_WANTS_KEY);
    const struct access_rules apart = {
        .admin_key = true, .admin_address = true, .metrics_public = true};
    assert_int_equal(access_decide(&apart, &nobody, row), ACCESS_GRANTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_find),
                                       cmocka_unit_test(test_every_route_with_every_key),
                                       cmocka_unit_test(test_public_metrics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
