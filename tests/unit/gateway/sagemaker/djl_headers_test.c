/* Tests SageMaker's custom attributes, query strings, and the sources of the adapter's name. */
#include "gateway/sagemaker/djl_headers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_attributes(void **state)
{
    static const struct {
        const char *text, *name, *want; /* `want`: expected value; NULL = absent */
    } cases[] = {
        {"a=1;b=2", "a", "1"},
        {"a=1;b=2", "b", "2"},
        {"a=1;b=2", "c", NULL},
        {" a = 1 ; b=2", "a", "1"},
        {"A=1", "a", "1"},
        {"a=1;a=2", "a", "1"},
        {"a=b=c", "a", "b=c"},
        {"a", "a", NULL},
        {"a;b=1", "a", NULL},
        {"a=", "a", ""},
        {"=1", "a", NULL},
        {"ab=1", "a", NULL},
        {";;;a=1;", "a", "1"},
        {"", "a", NULL},
        {"handler=x", "handler", "x"},
        {"x=handler", "handler", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str got;
        bool found = djl_attribute(str_from(cases[i].text), cases[i].name, &got);
        if (found != (cases[i].want != NULL) || (found && !str_eq_c(got, cases[i].want)))
            fail_msg("%s of \"%s\"", cases[i].name, cases[i].text);
    }
}

static void test_adapter(void **state)
{
#define ATTRIBUTE "X-Amzn-SageMaker-Adapter-Identifier="
    static const struct {
        const char *header, *attributes, *query, *want;
    } cases[] = {
        {"", "", "", ""},
        {"h", ATTRIBUTE "a", "adapter=q", "h"},
        {"", "x=1;" ATTRIBUTE "a", "adapter=q", "a"},
        {"", ATTRIBUTE, "b=1&adapter=q", "q"},
        {"", "adapter=a", "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct djl_headers h = {str_from(cases[i].header), str_from(cases[i].attributes),
                                      str_from(cases[i].query)};
        if (!str_eq_c(djl_adapter(&h), cases[i].want))
            fail_msg("case %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attributes),
                                       cmocka_unit_test(test_adapter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
