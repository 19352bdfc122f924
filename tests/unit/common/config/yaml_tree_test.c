/* Tests the YAML reader: a document becomes a tree with positions, and errors name their line
 * and column. */
#include "common/config/yaml_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static enum status parse(const char *text, struct arena *a, struct yaml_node **root,
                         struct yaml_mark *at, struct error *err)
{
    arena_init(a, 0);
    return yaml_tree_parse(str_from(text), a, root, at, err);
}

static void test_as_json(void **state)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"a", "\"a\""},
        {"a: 1\nb: [x, 'true', true, ~]\n", "{\"a\":1,\"b\":[\"x\",\"true\",true,null]}"},
        {"{a: {b: {c: -1.5e3}}, d: 007, e: 0x1f, f: .5, g: 1., h: '', i: }",
         "{\"a\":{\"b\":{\"c\":-1.5e3}},\"d\":\"007\",\"e\":\"0x1f\",\"f\":\".5\",\"g\":\"1.\","
         "\"h\":"
         "\"\",\"i\":null}"},
        {"a: |\n  x\n  y\n", "{\"a\":\"x\\ny\\n\"}"},
        {"[]", "[]"},
        {"# nothing\n", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena a;
        struct yaml_node *root;
        struct yaml_mark at;
        struct error err = {0};
        struct strbuf b;
        strbuf_init(&b, 0);
        if (parse(rows[i].text, &a, &root, &at, &err) != STATUS_OK)
            fail_msg("%s: %s", rows[i].text, err.text);
        if (!root != !rows[i].want)
            fail_msg("%s: a tree, or none", rows[i].text);
        if (root)
            yaml_node_append_json(root, &b);
        if (root && strcmp(strbuf_str(&b).ptr, rows[i].want) != 0)
            fail_msg("%s gives %s", rows[i].text, b.ptr);
        strbuf_fini(&b);
        arena_fini(&a);
    }
}

static void test_places(void **state)
{
    struct arena a;
    struct yaml_node *root;
    struct yaml_mark at;
    struct error err = {0};
    assert_int_equal(parse("a: 1\nbb:\n  - x\n  - {c: y}\n", &a, &root, &at, &err), STATUS_OK);
    const struct yaml_node *list = root->first->next, *map = list->first->next;
    assert_int_equal(root->n, 2);
    assert_int_equal(list->key->at.line * 100 + list->key->at.column, 201);
    assert_int_equal(map->first->at.line * 100 + map->first->at.column, 409);
    assert_string_equal(map->first->text, "y");
    arena_fini(&a);
}

static void test_refused(void **state)
{
    struct strbuf many;
    strbuf_init(&many, 0);
    strbuf_append_c(&many, "[a");
    for (int i = 0; i < YAML_TREE_NODES_MAX; i++)
        strbuf_append_c(&many, ",a");
    strbuf_append_c(&many, "]");
    const struct {
        const char *text;
        uint32_t line, column;
        const char *want;
    } rows[] = {
        {"a: [", 2, 1, "not valid YAML"},
        {"a: 1\na: 2\n", 2, 1, "\"a\" is already set in line 1"},
        {"a: &x 1\n", 1, 4, "anchors"},
        {"a: &x [1]\n", 1, 4, "anchors"},
        {"a: &x [*x]\n", 1, 4, "anchors"},
        {"a: *x\n", 1, 4, "aliases"},
        {"a: !!int 1\n", 1, 4, "tags"},
        {"? [a]\n: b\n", 1, 3, "expected a key"},
        {"\"a\\0b\": 1\n", 1, 1, "NUL"},
        {"a: 1\n--- \nb: 1\n", 2, 1, "more than one YAML document"},
        {"[[[[[[[[[[[[[[[[[a]]]]]]]]]]]]]]]]]", 1, 17, "nested too deeply"},
        {many.ptr, 1, 0, "too many values"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena a;
        struct yaml_node *root;
        struct yaml_mark at;
        struct error err = {0};
        enum status s = parse(rows[i].text, &a, &root, &at, &err);
        if (s != STATUS_INVALID || !strstr(err.text, rows[i].want) || at.line != rows[i].line ||
            (rows[i].column && at.column != rows[i].column))
            fail_msg("%.40s: %u:%u: %s", rows[i].text, at.line, at.column, err.text);
        arena_fini(&a);
    }
    strbuf_fini(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_json),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
