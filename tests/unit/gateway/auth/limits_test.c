#include "gateway/auth/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"

static const uint64_t S = 1000000000ull, START = 5000000000ull;

static struct api_key *make(const char *options)
{
    struct api_key *k = mem_zalloc(sizeof *k);
    k->n_refs = 1;
    for (const char *at = options; *at;) {
        size_t n = strcspn(at, " ");
        if (!limits_parse(&k->limits, (struct str){at, n}))
            fail_msg("%s", at);
        at += n + strspn(at + n, " ");
    }
    return k;
}

/* Calls `limits_admit` for one request. Returns 0 when it is admitted, otherwise the seconds to
 * wait. */
static uint32_t ask(struct api_key *k, uint64_t t)
{
    struct api_error e = {0};
    bool ok = limits_admit(k, t, &e);
    assert_int_equal(ok, e.http_status == 0);
    assert_true(ok || (e.http_status == 429 && e.retry_after_s > 0 && e.message[0]));
    return ok ? 0 : e.retry_after_s;
}

static void test_options(void **state)
{
    static const struct {
        const char *option;
        bool ok;
    } cases[] = {
        {"rate=0.5", true},      {"rate=1e3", true},
        {"rate=0", false},       {"rate=-1", false},
        {"rate=inf", false},     {"rate=nan", false},
        {"rate=", false},        {"rate", false},
        {"rate=1x", false},      {"rate=0x10", false},
        {"rate=1e999", false},   {"tokens=60000", true},
        {"streams=4", true},     {"streams=0", false},
        {"streams=1.5", false},  {"priority=-3", true},
        {"priority=0", true},    {"priority=99999999999", false},
        {"models=a,b/c", true},  {"models=", false},
        {"Rate=1", false},       {"limit=1", false},
        {"=1", false},           {"", false},
        {"rate=1 ", false},      {"streams=99999999", false},
        {"priority=1.5", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct key_limits l = {0};
        if (limits_parse(&l, str_from(cases[i].option)) != cases[i].ok)
            fail_msg("\"%s\"", cases[i].option);
        key_limits_fini(&l);
    }
}

static void test_rate(void **state)
{
    struct api_key *k = make("rate=2");
    assert_int_equal(ask(k, START), 0);
    assert_int_equal(ask(k, START), 0);
    assert_int_equal(ask(k, START), 1);
    assert_int_equal(ask(k, START + S / 2), 0); /* refused requests do not count */
    assert_int_equal(ask(k, START + S / 2), 1);
    /* the bucket fills up to one second of requests */
    assert_int_equal(ask(k, START + 100 * S), 0);
    assert_int_equal(ask(k, START + 100 * S), 0);
    assert_int_equal(ask(k, START + 100 * S), 1);
    assert_int_equal(ask(k, START + 99 * S), 1); /* a clock that jumps back adds nothing */
    api_key_drop(k);

    k = make("rate=0.1"); /* even with a rate below 1/s one request is admitted */
    assert_int_equal(ask(k, START), 0);
    assert_int_equal(ask(k, START), 10);
    assert_int_equal(ask(k, START + 4 * S), 6);
    assert_int_equal(ask(k, START + 10 * S), 0);
    api_key_drop(k);
}

static void test_tokens(void **state)
{
    struct api_key *k = make("tokens=60");
    assert_int_equal(ask(k, START), 0);
    limits_spend(k, 59, START);
    assert_int_equal(ask(k, START), 0);
    /* admitted requests may finish, so the use is 20 tokens over the limit */
    limits_spend(k, 21, START);
    assert_int_equal(ask(k, START), 21);
    assert_int_equal(ask(k, START + 20 * S), 1);
    assert_int_equal(ask(k, START + 21 * S), 0);
    limits_spend(k, 1000000, START + 21 * S);
    /* 3600 s is the longest wait in an answer to a client */
    assert_int_equal(ask(k, START + 21 * S), 3600);
    api_key_drop(k);
}

static void test_streams(void **state)
{
    struct api_key *k = make("streams=2");
    assert_int_equal(ask(k, START), 0);
    limits_open(k);
    assert_int_equal(ask(k, START), 0);
    limits_open(k);
    assert_int_equal(ask(k, START), 1);
    limits_close(k);
    assert_int_equal(ask(k, START), 0);
    api_key_drop(k); /* the key is removed from the file, but its open request still uses it */
    assert_int_equal(k->n_open, 1);
    limits_close(k);
}

static void test_models_and_priority(void **state)
{
    static const struct {
        const char *options, *model;
        bool ok;
        int64_t asked, priority;
    } cases[] = {
        {"", "any", true, 7, 7},
        {"models=a,bc", "a", true, 0, 0},
        {"models=a,bc", "bc", true, 0, 0},
        {"models=a,bc", "b", false, 0, 0},
        {"models=a,bc", "a,bc", false, 0, 0},
        {"models=a,bc", "", false, 0, 0},
        {"priority=5", "x", true, 0, 5}, /* a request cannot raise its own priority */
        {"priority=5", "x", true, -9, 5},
        {"priority=5", "x", true, 9, 9},
        {"priority=-2", "x", true, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_key *k = make(cases[i].options);
        if (limits_allow_model(k, str_from(cases[i].model)) != cases[i].ok ||
            limits_priority(k, cases[i].asked) != cases[i].priority)
            fail_msg("%s: %s", cases[i].options, cases[i].model);
        api_key_drop(k);
    }
    assert_true(limits_allow_model(NULL, STR("x")));
    assert_int_equal(limits_priority(NULL, -4), -4);
    assert_int_equal(ask(NULL, START), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_models_and_priority),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
