/* Tests the query parameters that a listener of /api/stream may send. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "head/admin/stream_query.h"

static void what_is_asked_for_is_taken(void **state)
{
    struct stream_query q;
    struct error err = {0};
    struct str all = STR("show=ended&sort=decode&desc=1&offset=400&limit=200&group=7&kv=1&walk=9&"
                         "samples=5&events=6&else=x");
    assert_int_equal(stream_query_parse(all, &q, &err), STATUS_OK);
    assert_int_equal(q.view.show, SHOW_ENDED);
    assert_int_equal(q.view.sort, SORT_DECODE);
    assert_true(q.view.descending && q.wants_kv);
    assert_int_equal(q.view.offset, 400);
    assert_int_equal(q.view.limit, 200);
    assert_int_equal(q.replica, 7);
    assert_int_equal(q.i_kv, 1);
    assert_int_equal(q.walk, 9);
    assert_int_equal(q.next_sample, 5);
    assert_int_equal(q.next_event, 6);
    assert_int_equal(stream_query_parse(STR(""), &q, &err), STATUS_OK);
    assert_int_equal(q.view.limit, 0);
    assert_false(q.wants_kv);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    static const struct {
        const char *query, *text;
    } cases[] = {
        {"limit=201", "limit must be a number of at most 200"},
        {"limit=-1", "limit must be a number of at most 200"},
        {"limit", "limit must be a number of at most 200"},
        {"offset=4294967296", "offset must be a number below 2^32"},
        {"limit=5&sort=colour", "sort must be arrival, queue"},
        {"show=", "show must be live, waiting, running or ended"},
        {"desc=2", "desc must be 0 or 1"},
        {"kv=8", "kv must be a number from 0 to 7"},
        {"samples=99999999999999999999", "samples must be a number"},
        {"group=a", "group must be the id of a replica"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stream_query q;
        struct error err = {0};
        assert_int_equal(stream_query_parse(str_from(cases[i].query), &q, &err), STATUS_INVALID);
        if (!strstr(err.text, cases[i].text))
            fail_msg("%s: %s", cases[i].query, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_asked_for_is_taken),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
