#include "common/base/path.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_is_below(void **state)
{
    static const struct {
        const char *path, *root;
        bool want;
    } cases[] = {
        {"/a/b", "/a", true}, {"/a/b/c", "/a", true}, {"/a", "/a", false},   {"/a/", "/a", false},
        {"/ab", "/a", false}, {"/", "/a", false},     {"/a", "/a/b", false}, {"/b/a", "/a", false},
        {"/a", "/", true},    {"/a/b", "/", true},    {"/", "/", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (path_is_below(cases[i].path, cases[i].root) != cases[i].want)
            fail_msg("%s below %s", cases[i].path, cases[i].root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_is_below)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
