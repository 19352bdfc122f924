/* Tests the table of models that are loaded and unloaded: their names, GPUs and ports, and the
 * answers about them. Numbers of statements in this file are those of docs/develop/gateway.md. */
#include "cli/multi_model/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct model_table t;
static struct error err;

static enum status add(const char *name, uint32_t n_gpus, struct loaded_model **out)
{
    err = (struct error){0};
    return model_table_add(&t, str_from(name), STR("/opt/ml/models/x"), n_gpus, out, &err);
}

static void assert_text(struct strbuf *b, const char *want)
{
    assert_string_equal(strbuf_str(b).ptr, want);
    strbuf_reset(b);
}

static void test_gpus_and_ports(void **state)
{
    struct loaded_model *a, *b, *c;
    struct strbuf text;
    strbuf_init(&text, 0);
    assert_int_equal(model_table_init(&t, 4, "30000-30100", &err), STATUS_OK);
    assert_int_equal(add("a", 2, &a), STATUS_OK);
    assert_int_equal(add("b", 1, &b), STATUS_OK);
    /* statement 61: the model does not fit, since only one GPU is free */
    assert_int_equal(add("c", 2, &c), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "it needs 2, but only 1 are free"));
    model_table_devices(a, &text);
    assert_text(&text, "0,1");
    assert_int_equal(a->port, 30000);
    assert_int_equal(b->port, 30032);
    model_table_remove(a);
    /* model c gets the GPUs of a, on both sides of b's GPU */
    assert_int_equal(add("c", 3, &c), STATUS_OK);
    model_table_devices(c, &text);
    assert_text(&text, "0,1,3");
    assert_int_equal(c->port, 30000);
    assert_int_equal(add("d", 0, &a), STATUS_OK);
    /* the range has 101 ports, which are enough for only three models */
    assert_int_equal(add("e", 0, &a), STATUS_LIMIT);
    strbuf_fini(&text);
}

static void test_names(void **state)
{
    struct loaded_model *m;
    char longest[MODEL_NAME_MAX + 2];
    static const char *const wrong[] = {"", "a/b", "a b", "\xC3\xA4", "a\n"};
    assert_int_equal(model_table_init(&t, 0, NULL, &err), STATUS_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(add(wrong[i], 0, &m), STATUS_INVALID);
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(add(longest, 0, &m), STATUS_INVALID);
    assert_int_equal(add(longest + 1, 0, &m), STATUS_OK);
    assert_int_equal(add(longest + 1, 0, &m), STATUS_EXISTS); /* statement 61: the name is taken */
    assert_ptr_equal(model_table_only(&t), m);
    assert_int_equal(add("b", 0, &m), STATUS_OK);
    assert_null(model_table_only(&t));
    m->state = MODEL_STOPPING;
    assert_string_equal(model_table_only(&t)->name, longest + 1);
    assert_ptr_equal(model_table_find(&t, STR("b")), m);
    model_table_remove(m);
    assert_null(model_table_find(&t, STR("b")));
}

static void test_ports(void **state)
{
    static const char *const wrong[] = {"",      "1-",      "-5",         "a-b", "0-100",
                                        "1-31",  "100-50",  "1-70000",    "100", "1-2-3",
                                        "1-1e3", "29000- ", "29000-29030"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (struct error){0};
        if (model_table_init(&t, 0, wrong[i], &err) != STATUS_INVALID)
            fail_msg("%s", wrong[i]);
    }
    assert_int_equal(model_table_init(&t, 0, "1-32", &err), STATUS_OK);
    assert_int_equal(t.n_slots, 1);
    assert_true(model_table_has_port(&t, 1) && model_table_has_port(&t, 32));
    assert_false(model_table_has_port(&t, 0) || model_table_has_port(&t, 33));
    assert_int_equal(model_table_init(&t, 0, "1-65535", &err), STATUS_OK);
    assert_int_equal(t.n_slots, MODEL_TABLE_MAX);
}

static void test_texts(void **state)
{
    struct loaded_model *a, *b;
    struct strbuf text;
    strbuf_init(&text, 0);
    assert_int_equal(model_table_init(&t, 0, NULL, &err), STATUS_OK);
    assert_true(model_table_ping(&t, &text));
    assert_text(&text, "{}\n");
    model_table_list(&t, 0, 100, &text);
    assert_text(&text, "{\"models\":[]}\n");
    assert_int_equal(add("a", 0, &a), STATUS_OK);
    assert_int_equal(add("b", 0, &b), STATUS_OK);
    a->state = MODEL_READY;
    assert_true(model_table_ping(&t, &text));
    assert_text(&text,
                "{\n  \"a\": {\n    \"status\": \"Healthy\"\n  },\n  \"b\": {\n    \"status\": "
                "\"PENDING\"\n  }\n}\n");
#define A "{\"modelName\":\"a\",\"modelUrl\":\"/opt/ml/models/x\",\"status\":\"Healthy\"}"
#define B "{\"modelName\":\"b\",\"modelUrl\":\"/opt/ml/models/x\",\"status\":\"PENDING\"}"
    model_table_list(&t, 0, 100, &text);
    assert_text(&text, "{\"models\":[" A "," B "]}\n");
    model_table_list(&t, 0, 1, &text);
    assert_text(&text, "{\"models\":[" A "],\"nextPageToken\":\"1\"}\n");
    model_table_list(&t, 1, 1, &text);
    assert_text(&text, "{\"models\":[" B "]}\n");
    b->state = MODEL_FAILED;
    assert_false(model_table_ping(&t, &text));
    strbuf_fini(&text);
}

static void test_urls(void **state)
{
    static const struct {
        const char *url, *root;
        bool want;
    } cases[] = {
        {"/opt/ml/models/a/model", "/opt/ml/models", true},
        {"/opt/ml/models/a", "/opt/ml/models/", true},
        {"/opt/ml/models/..a", "/opt/ml/models", true},
        {"/opt/ml/models", "/opt/ml/models", false},
        {"/opt/ml/models/", "/opt/ml/models", false},
        {"/opt/ml/modelsx/a", "/opt/ml/models", false},
        {"/opt/ml/models/../a", "/opt/ml/models", false},
        {"/opt/ml/models/a/..", "/opt/ml/models", false},
        {"/opt/ml/models/./a", "/opt/ml/models", false},
        {"opt/ml/models/a", "opt/ml/models", false},
        {"s3://bucket/a", "/", false},
        {"", "/", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (model_url_is_below(cases[i].url, cases[i].root) != cases[i].want)
            fail_msg("%s below %s", cases[i].url, cases[i].root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpus_and_ports),
                                       cmocka_unit_test(test_names), cmocka_unit_test(test_ports),
                                       cmocka_unit_test(test_texts), cmocka_unit_test(test_urls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
