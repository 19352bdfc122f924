/* Tests the table of `cox usage`: JSON in, text out. */
#include "cli/view/usage_view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void assert_shows(const char *json, const char *text)
{
    struct strbuf b;
    json_t *j = json_loads(json, 0, NULL);
    assert_non_null(j);
    strbuf_init(&b, 0);
    usage_view_render(j, &b);
    assert_string_equal(b.ptr, text);
    strbuf_fini(&b);
    json_decref(j);
}

#define HEADER                                                                                     \
    "key                        requests  prompt tokens  cached tokens      generated  block "     \
    "seconds step seconds  step %\n"

static void test_the_whole_table(void **state)
{
    assert_shows(
        "{\"model\":\"demo\",\"since\":1700000000.25,\"totals\":{\"requests\":30,\"prompt_tokens\":"
        "900,\"cached_tokens\":100,\"generated_tokens\":450,\"block_ms\":12340,\"step_ns\":"
        "4000000000},\"tenants\":[{\"name\":\"gr\\u00fcn\",\"tenant\":\"00000000000000aa\","
        "\"requests\":20,\"prompt_tokens\":800,\"cached_tokens\":100,\"generated_tokens\":400,"
        "\"block_ms\":12000,\"step_ns\":3000000000},{\"name\":null,\"tenant\":"
        "\"0000000000000000\",\"requests\":9,\"prompt_tokens\":100,\"cached_tokens\":0,"
        "\"generated_tokens\":50,\"block_ms\":340,\"step_ns\":1000000000},{\"name\":null,"
        "\"tenant\":\"00000000000000bb\",\"requests\":1}]}",
        "model demo   since 2023-11-14T22:13:20Z\n" HEADER
        "TOTAL                            30            900            100            450          "
        " 12.3          4.0   100.0\n"
        "gr\xc3\xbcn                             20            800            100            400   "
        "        12.0          3.0    75.0\n"
        "(no key)                          9            100              0             50          "
        "  0.3          1.0    25.0\n"
        "00000000000000bb                  1              0              0              0          "
        "  0.0          0.0     0.0\n");
}

static void test_hostile_and_missing_fields(void **state)
{
    assert_shows("{}", "model -   since -\n" HEADER
                       "TOTAL                             0              0              0          "
                       "    0            0.0          0.0       -\n");
    assert_shows("{\"model\":7,\"since\":\"x\",\"totals\":[],\"tenants\":[{\"name\":"
                 "\"a\\u001b[31mb\\nc\",\"requests\":\"x\"},3]}",
                 "model -   since -\n" HEADER
                 "TOTAL                             0              0              0              0 "
                 "           0.0          0.0       -\n"
                 "a?[31mb?c                         0              0              0              0 "
                 "           0.0          0.0       -\n"
                 "-                                 0              0              0              0 "
                 "           0.0          0.0       -\n");
}

static void test_a_long_name_is_cut_at_a_character(void **state)
{
    static const char ue[] = "\xc3\xbc";
    char json[400] = "{\"tenants\":[{\"name\":\"", *at;
    struct strbuf b;
    for (int i = 0; i < 40; i++)
        strcat(json, ue);
    strcat(json, "\"}]}");
    json_t *j = json_loads(json, 0, NULL);
    strbuf_init(&b, 0);
    usage_view_render(j, &b);
    at = strstr(b.ptr, ue);
    assert_non_null(at);
    assert_int_equal(strspn(at, ue), 48);
    assert_int_equal(at[48], ' ');
    strbuf_fini(&b);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_whole_table),
        cmocka_unit_test(test_hostile_and_missing_fields),
        cmocka_unit_test(test_a_long_name_is_cut_at_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
