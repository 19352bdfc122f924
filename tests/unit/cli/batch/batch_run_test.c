/* Tests the line of a batch's output that is made from a gateway's answer. */
#include "cli/batch/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ID      "{\"id\":\"batch_req_00000000000000ab\",\"custom_id\":"
#define REQUEST "\"request_id\":\"req_00000000000000ab\",\"body\":"

static void test_lines(void **state)
{
    static const struct {
        const char *custom_id;
        int status;
        struct str body;
        const char *want;
    } cases[] = {
        {"a", 200, STR("{\"n\":1}"),
         ID "\"a\",\"response\":{\"status_code\":200," REQUEST "{\"n\":1}},\"error\":null}\n"},
        /* Newlines between JSON tokens become spaces; escapes inside strings stay. */
        {"q\"\n", 200, STR("{\n  \"t\": \"a\\nb\"\r\n}\n"),
         ID "\"q\\\"\\n\",\"response\":{\"status_code\":200," REQUEST
            "{   \"t\": \"a\\nb\"  } },\"error\":null}\n"},
        {"a", 400, STR("{\"error\":{\"message\":\"no\",\n\"param\":null}}"),
         ID "\"a\",\"response\":{\"status_code\":400," REQUEST
            "null},\"error\":{\"message\":\"no\",\"param\":null}}\n"},
        {"a", 500, STR("<html>"),
         ID "\"a\",\"response\":{\"status_code\":500," REQUEST
            "null},\"error\":{\"message\":\"the answer (status 500) is not the JSON of a "
            "gateway\"}}\n"},
        {"a", 200, STR("half of {"),
         ID "\"a\",\"response\":{\"status_code\":200," REQUEST
            "null},\"error\":{\"message\":\"the answer (status 200) is not the JSON of a "
            "gateway\"}}\n"},
        {"a", 404, STR("{\"error\":\"text\"}"),
         ID "\"a\",\"response\":{\"status_code\":404," REQUEST
            "null},\"error\":{\"message\":\"the answer (status 404) is not the JSON of a "
            "gateway\"}}\n"},
        {NULL, 400, STR("{\"error\":{}}"),
         ID "null,\"response\":{\"status_code\":400," REQUEST "null},\"error\":{}}\n"},
        {"", 200, STR(""),
         ID "\"\",\"response\":{\"status_code\":200," REQUEST
            "null},\"error\":{\"message\":\"the answer (status 200) is not the JSON of a "
            "gateway\"}}\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf out;
        strbuf_init(&out, 0);
        batch_answer_write(&out, cases[i].custom_id, 0xab, cases[i].status, cases[i].body);
        assert_string_equal(strbuf_str(&out).ptr, cases[i].want);
        strbuf_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
