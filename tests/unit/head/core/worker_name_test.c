/* Tests names of workers in orders: instance numbers, nodes and ordinals. A name that fits no
 * worker or several workers is an error. */
#include "tests/unit/head/core/core_fixture.h"

#include "head/core/worker_name.h"

static void join(struct fixture *f, uint8_t conn, const char *node, int32_t ordinal)
{
    struct msg m = worker_hello(100u + conn, ordinal);
    m.hello.node = str_from(node);
    say(f, conn, &m);
}

static void who_is_meant(void **state)
{
    static const struct {
        const char *name;
        uint64_t want; /* instance that the name must find; 0 = none or several */
        enum status status;
        const char *words[3]; /* parts of the error text */
    } cases[] = {
        {"0000000000000065", 101, STATUS_OK, {NULL}},
        {"0000000000000066", 102, STATUS_OK, {NULL}},
        {"cox-worker-3", 101, STATUS_OK, {NULL}},
        {"3", 101, STATUS_OK, {NULL}},
        {"worker-3", 101, STATUS_OK, {NULL}},
        {"7", 105, STATUS_OK, {NULL}}, /* "7" is node 7, and not ordinal 7 of another node */
        {"worker-7", 104, STATUS_OK, {NULL}},
        {"big", 0, STATUS_INVALID, {"0000000000000066 (ordinal 5, big)", "67 (ordinal 6, big)"}},
        {"worker-9", 0, STATUS_INVALID, {"2 workers", "69 (ordinal 9, 7)", "6a (ordinal 9, n)"}},
        {"worker-0", 0, STATUS_NOT_FOUND, {"\"worker-0\"", "16 hex digits", "cox status"}},
        {"0000000000000001", 0, STATUS_NOT_FOUND, {"16 hex digits"}},
        {"0000000000000003", 0, STATUS_NOT_FOUND, {NULL}},
        {"03", 0, STATUS_NOT_FOUND, {NULL}},
        {"cox-worker", 0, STATUS_NOT_FOUND, {"\"cox-worker\""}},
        {"worker-", 0, STATUS_NOT_FOUND, {NULL}},
        {"worker--1", 0, STATUS_NOT_FOUND, {NULL}},
        {"-1", 0, STATUS_NOT_FOUND, {NULL}},
        {"", 0, STATUS_NOT_FOUND, {NULL}},
        {"a-name-that-is-much-longer-than-any-node-can-have-as-all-are-cut-to-64",
         0,
         STATUS_NOT_FOUND,
         {"\"...\""}},
    };
    struct fixture *f = fixture_new(2);
    join(f, 1, "cox-worker-3", 3);
    join(f, 2, "big", 5);
    join(f, 3, "big", 6);
    join(f, 4, "n4", 7);
    join(f, 5, "7", 9);
    join(f, 6, "n", 9);
    join(f, 7, "none", -1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err = {0};
        uint64_t got = 99;
        enum status s = head_core_find_worker(f->core, str_from(cases[i].name), &got, &err);
        if (s != cases[i].status || got != cases[i].want)
            fail_msg("\"%s\": %s %llu %s", cases[i].name, status_name(s), (unsigned long long)got,
                     err.text);
        for (size_t k = 0; k < 3 && cases[i].words[k]; k++)
            if (!strstr(err.text, cases[i].words[k]))
                fail_msg("\"%s\": no %s in: %s", cases[i].name, cases[i].words[k], err.text);
    }
    fixture_free(f);
}

/* A node has more workers than the text can list. */
static void a_list_ends(void **state)
{
    static const char node[] = "n23456789012345678901234567890123456789012345678901234567890123";
    struct fixture *f = fixture_new(2);
    struct error err = {0};
    uint64_t got;
    for (uint8_t i = 1; i <= 8; i++)
        join(f, i, node, i);
    assert_int_equal(head_core_find_worker(f->core, str_from(node), &got, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "8 workers"));
    assert_non_null(strstr(err.text, "0000000000000065 (ordinal 1"));
    assert_string_equal(err.text + strlen(err.text) - 5, ", ...");
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_is_meant),
                                       cmocka_unit_test(a_list_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
