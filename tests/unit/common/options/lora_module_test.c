/* Tests the items of --lora-modules: NAME=FOLDER, and vLLM's JSON. */
#include "common/options/lora_module.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_items(void **state)
{
    static const struct {
        const char *item, *name, *path; /* item and its parts; NULL = refused */
    } cases[] = {
        {"a=b/c", "a", "b/c"},
        {"a=b=c", "a", "b=c"},
        {"{\"name\": \"a\", \"path\": \"b\"}", "a", "b"},
        {"{\"name\":\"a\",\"path\":\"b\",\"base_model_name\":\"m\"}", "a", "b"},
        {"{\"name\":\"a\",\"path\":\"b\",\"base_model_name\":null}", "a", "b"},
        {"a", NULL, NULL},
        {"=b", NULL, NULL},
        {"a=", NULL, NULL},
        {"{\"name\":\"a\"}", NULL, NULL},
        {"{\"name\":\"a\",\"path\":7}", NULL, NULL},
        {"{\"name\":\"\",\"path\":\"b\"}", NULL, NULL},
        {"{\"name\":\"a\",\"path\":\"b\",\"rank\":8}", NULL, NULL},
        {"{\"name\":\"a\",\"name\":\"b\",\"path\":\"b\"}", NULL, NULL},
        {"{", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lora_modules_item m;
        struct error err = {0};
        enum status s = lora_module_read(cases[i].item, &m, &err);
        if ((s == STATUS_OK) != (cases[i].name != NULL))
            fail_msg("%s: %s", cases[i].item, err.text);
        if (s != STATUS_OK) {
            assert_non_null(strstr(err.text, "NAME=FOLDER"));
            continue;
        }
        assert_string_equal(m.name, cases[i].name);
        assert_string_equal(m.path, cases[i].path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_items)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
