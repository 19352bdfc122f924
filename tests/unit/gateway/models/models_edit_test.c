/* Tests how an admin's edit changes the text of a set of models. */
#include "gateway/models/edit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/models/file.h"

#define SET                                                                                        \
    "models:\n- {name: a, head: '127.0.0.1:7000', model: /m, aliases: [x, y]}\n"                   \
    "- {name: b, head: '127.0.0.1:7100', model: /m}\n"

static enum status edit(const char *text, enum models_edit_kind kind, const char *name,
                        const char *item, struct models_file *out, struct error *err)
{
    struct strbuf next;
    struct error later = {0};
    char own[32];
    snprintf(own, sizeof own, "%s", name);
    const struct models_edit e = {
        .kind = kind, .list = "models", .name = own, .item = json_loads(item, 0, NULL)};
    strbuf_init(&next, MODELS_FILE_MAX);
    enum status s = models_text_edit(str_from(text), &e, &next, err);
    if (s == STATUS_OK)
        assert_int_equal(models_file_parse(strbuf_str(&next), "set", out, &later), STATUS_OK);
    strbuf_fini(&next);
    json_decref(e.item);
    return s;
}

/* Compares the names of model i: the name, then the aliases. */
static void check_names(struct models_file *f, uint32_t i, const char *want)
{
    char got[100] = "";
    for (uint32_t k = 0; k < f->entries[i].n_names; k++) {
        strcat(got, k > 0 ? " " : "");
        strcat(got, f->entries[i].names[k]);
    }
    assert_string_equal(got, want);
    models_file_fini(f);
}

static void test_aliases(void **state)
{
    struct models_file f;
    struct error err = {0};
    assert_int_equal(
        edit(SET, MODELS_ALIASES, "a", "{\"add\":[\"z\"],\"remove\":[\"x\"]}", &f, &err),
        STATUS_OK);
    check_names(&f, 0, "a y z");
    assert_int_equal(edit(SET, MODELS_ALIASES, "b", "{\"add\":[\"1.10\"]}", &f, &err), STATUS_OK);
    check_names(&f, 1, "b 1.10");
    assert_int_equal(edit(SET, MODELS_ALIASES, "a", "{\"remove\":[\"x\",\"y\"]}", &f, &err),
                     STATUS_OK);
    check_names(&f, 0, "a");
}

static void test_wrong_aliases(void **state)
{
    static const struct {
        const char *name, *item;
        enum status want;
        const char *why;
    } cases[] = {
        {"a", "{\"remove\":[\"z\"]}", STATUS_NOT_FOUND, "a has no alias z"},
        {"a", "{\"remove\":[7]}", STATUS_NOT_FOUND, "a has no alias of this form"},
        {"a", "{\"add\":[7]}", STATUS_INVALID, "an alias must be a word"},
        {"a", "{\"add\":[\"b\"]}", STATUS_INVALID, "b"},
        {"b", "{\"add\":[\"x\"]}", STATUS_INVALID, "x"},
        {"x", "{\"add\":[\"z\"]}", STATUS_NOT_FOUND, "no such name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct models_file f;
        struct error err = {0};
        assert_int_equal(edit(SET, MODELS_ALIASES, cases[i].name, cases[i].item, &f, &err),
                         cases[i].want);
        assert_non_null(strstr(err.text, cases[i].why));
    }
    struct models_file f;
    struct error err = {0};
    assert_int_equal(
        edit("managed_by: cox up\n" SET, MODELS_ALIASES, "a", "{\"add\":[\"z\"]}", &f, &err),
        STATUS_EXISTS);
}

static void test_entries(void **state)
{
    struct models_file f;
    struct error err = {0};
    assert_int_equal(edit(SET, MODELS_REMOVE, "a", "{}", &f, &err), STATUS_OK);
    check_names(&f, 0, "b");
    assert_int_equal(edit(SET, MODELS_SET, "a", "{\"name\":\"c\",\"model\":\"/m\"}", &f, &err),
                     STATUS_OK);
    check_names(&f, 0, "a");
    assert_int_equal(edit("", MODELS_SET, "c", "{\"model\":\"/m\",\"aliases\":[\"d\"]}", &f, &err),
                     STATUS_OK);
    check_names(&f, 0, "c d");
    assert_int_equal(edit(SET, MODELS_REMOVE, "c", "{}", &f, &err), STATUS_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_aliases),
                                       cmocka_unit_test(test_wrong_aliases),
                                       cmocka_unit_test(test_entries)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
