/* Tests the order of the rows in the tables of `cox status` and `cox top`. */
#include "cli/view/status_sort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cli/view/answer.h"

static const char status[] =
    "{\"nodes\":[{\"node\":\"n10\"},{\"node\":\"n9\"}],\"groups\":[{\"id\":10},{\"id\":2}],"
    "\"workers\":["
    "{\"instance\":\"a\",\"node\":\"n10\",\"ordinal\":0,\"state\":\"ready\",\"group\":1,"
    "\"own_step_s\":0.5,\"gpu\":{\"utilization\":0.1,\"memory_used_bytes\":9}},"
    "{\"instance\":\"b\",\"node\":\"n9\",\"ordinal\":10,\"state\":\"loading\",\"group\":null,"
    "\"gpu\":{\"utilization\":0.9,\"memory_used_bytes\":3}},"
    "{\"instance\":\"c\",\"node\":\"n9\",\"ordinal\":2,\"state\":\"ready\",\"group\":0,"
    "\"own_step_s\":0.7,\"gpu\":null}]}";

static const struct {
    enum status_order by;
    bool reversed;
    const char *want;
} cases[] = {
    {STATUS_BY_NAME, false, "cba"},   {STATUS_BY_NAME, true, "abc"},
    {STATUS_BY_STATE, false, "bca"},  {STATUS_BY_REPLICA, false, "cab"},
    {STATUS_BY_STEP, false, "cab"},   {STATUS_BY_GPU, false, "bac"},
    {STATUS_BY_MEMORY, false, "abc"},
};

static void test_orders(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *j = json_loads(status, 0, NULL), *w;
        char got[8] = "";
        size_t k;
        status_sort(j, cases[i].by, cases[i].reversed);
        json_array_foreach(json_object_get(j, "workers"), k, w)
            strcat(got, answer_text(w, "instance"));
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("by %s: %s in place of %s", status_order_name(cases[i].by), got,
                     cases[i].want);
        assert_string_equal(answer_text(json_array_get(json_object_get(j, "nodes"), 0), "node"),
                            "n9");
        assert_int_equal(answer_integer(json_array_get(json_object_get(j, "groups"), 0), "id"), 2);
        json_decref(j);
    }
}

/* Answers that no head of Coxswain gives cause no crash. */
static void test_nothing_to_sort(void **state)
{
    static const char *const strange[] = {"{}", "{\"workers\":{},\"nodes\":5,\"groups\":[1,null]}",
                                          "{\"workers\":[1,null,\"x\",[]]}"};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++)
        for (int by = 0; by < STATUS_ORDER_COUNT; by++) {
            json_t *j = json_loads(strange[i], 0, NULL);
            status_sort(j, (enum status_order)by, true);
            json_decref(j);
        }
    status_sort(NULL, STATUS_BY_NAME, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_nothing_to_sort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
