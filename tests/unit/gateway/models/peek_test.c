/* Tests the scan for the requested model: the scan and the parser must find the same name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "gateway/models/peek.h"

static void test_names(void **state)
{
    static const struct {
        const char *body, *want; /* want NULL = no name */
    } cases[] = {
        {"{\"model\":\"a\"}", "a"},
        {" \n{ \"model\" :\t\"a\" , \"x\":1}", "a"},
        {"{\"messages\":[{\"model\":\"b\",\"content\":\"\\\"model\\\":\\\"c\\\"\"}],\"model\":"
         "\"a\"}",
         "a"},
        {"{\"x\":\"\\\\\",\"model\":\"a\"}", "a"},
        {"{\"x\":\"\\\\\\\"\",\"model\":\"a\"}", "a"},
        {"{\"x\":{\"y\":[1,{\"}\":\"]\"}]},\"n\":-1.5e3,\"t\":true,\"z\":null,\"model\":\"a\"}",
         "a"},
        {"{\"mod\\u0065l\":\"\\u0061\\/b\"}", "a/b"},
        {"{\"\\u006d\\u006f\\u0064\\u0065\\u006c\":\"\\ud83d\\ude00\"}", "\xf0\x9f\x98\x80"},
        {"{\"\\u006D\\u006F\\u0064\\u0065\\u006C\":\"a\"}", "a"},
        {"{\"mode\\u006c2\":\"b\",\"mo\\u0064\":\"c\",\"model\":\"a\"}", "a"},
        {"{\"model\":\"\"}", ""},
        {"{\"Model\":\"a\"}", NULL},
        {"{\"models\":\"a\",\"mode\":\"b\"}", NULL},
        {"{\"model\":7}", NULL},
        {"{\"model\":null}", NULL},
        {"{\"model\":[\"a\"]}", NULL},
        {"{\"model\":\"a", NULL},
        {"{\"model\":\"\\u12\"}", NULL},
        {"{\"model\"", NULL},
        {"{\"model\" \"a\"}", NULL},
        {"[{\"model\":\"a\"}]", NULL},
        {"{}", NULL},
        {"{", NULL},
        {"", NULL},
        {"{\"x\":\"\\", NULL},
        {"{\"x\":[[[", NULL},
        {"model", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buf[MODEL_PEEK_MAX];
        struct str name;
        const struct str body = str_from(cases[i].body);
        const bool found = model_peek_name(body, model_peek_find(body), buf, &name);
        if (found != (cases[i].want != NULL) || (found && !str_eq_c(name, cases[i].want)))
            fail_msg("%s", cases[i].body);
    }
}

/* A name beyond the buffer is cut, so that it equals no model's name, and never read past its end.
 */
static void test_long_names(void **state)
{
    const size_t n = 100000;
    char *body = mem_alloc(n + 64), buf[MODEL_PEEK_MAX];
    struct str name;
    const char head[] = "{\"model\":\"";
    memcpy(body, head, sizeof head);
    memset(body + sizeof head - 1, 'x', n);
    memcpy(body + sizeof head - 1 + n, "\"}", 3);
    assert_true(model_peek_name(str_from(body), 9, buf, &name));
    assert_int_equal(name.len, MODEL_PEEK_MAX);
    body[sizeof head - 1] = '\\'; /* an escape that is not allowed, in a name beyond any limit */
    assert_true(model_peek_name(str_from(body), 9, buf, &name));
    assert_int_equal(name.len, MODEL_PEEK_MAX);
    mem_free(body);
}

/* The longest name may be written with an escape for each byte. One more byte cuts it. */
static void test_escaped_names(void **state)
{
    char buf[MODEL_PEEK_MAX];
    struct str name;
    struct strbuf body;
    for (uint32_t more = 0; more < 2; more++) {
        strbuf_init(&body, 0);
        strbuf_append_c(&body, "{\"model\":\"");
        for (uint32_t i = 0; i < MODEL_PEEK_MAX + more; i++)
            strbuf_append_c(&body, "\\u0061");
        strbuf_append_c(&body, "\"}");
        assert_true(model_peek_name(strbuf_str(&body), 9, buf, &name));
        assert_int_equal(name.len, MODEL_PEEK_MAX);
        assert_int_equal(name.ptr[0], more ? '\\' : 'a');
        strbuf_fini(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_long_names),
                                       cmocka_unit_test(test_escaped_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
