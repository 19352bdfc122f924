/* Tests the sources of a chat template: a model's named templates, and a template that the
 * operator gives on one line. */
#include "text_fixture.h"

static char *render(const struct text_template *t, const char *context)
{
    char err[TEXT_ERR_MAX] = "", *out = NULL;
    size_t len;
    if (text_template_render(t, context, strlen(context), 0, 0, &out, &len, err) != TEXT_OK)
        fail_msg("%s: %s", context, err);
    return out;
}

static void assert_renders(const char *override, const char *context, const char *want)
{
    char err[TEXT_ERR_MAX] = "";
    struct text_template *t = NULL;
    if (text_template_open(fixture_dir, override, NULL, &t, err) != TEXT_OK)
        fail_msg("%s: %s", override ? override : "none", err);
    char *out = render(t, context);
    assert_string_equal(out, want);
    text_free(out);
    text_template_free(t);
}

static void assert_refused(const char *override, int code, const char *says)
{
    char err[TEXT_ERR_MAX] = "";
    struct text_template *t = NULL;
    assert_int_equal(text_template_open(fixture_dir, override, NULL, &t, err), code);
    if (!strstr(err, says))
        fail_msg("%s, not %s", err, says);
}

static void write_named(const char *name, const char *text)
{
    char path[128];
    mkdir(fixture_path("additional_chat_templates"), 0700);
    snprintf(path, sizeof path, "additional_chat_templates/%s", name);
    fixture_write(path, text, strlen(text));
}

static const char *const tools = "{\"tools\":[{}],\"bos_token\":\"<s>\"}", *const none = "{}";

static void additional_templates(void **state)
{
    write_named("tool_use.jinja", "TOOLS{{ bos_token }}");
    assert_refused(NULL, TEXT_UNSUPPORTED, "no chat template");

    static const char config[] = "{\"bos_token\":\"<b>\",\"chat_template\":[{\"name\":\"default\","
                                 "\"template\":\"LISTED\"},{\"name\":\"rag\",\"template\":\"r\"}]}";
    fixture_write("tokenizer_config.json", config, sizeof config - 1);
    assert_renders(NULL, none, "LISTED");
    assert_renders(NULL, tools, "TOOLS<s>");

    fixture_write("chat_template.jinja", "PLAIN", 5);
    write_named("rag.jinja", "RAG{{ bos_token }}");
    write_named("broken.jinja", "{% if %}"); /* no request uses the invalid template */
    write_named("README.md", "{% if %}");
    assert_renders(NULL, none, "PLAIN");
    assert_renders(NULL, "{\"tools\":null}", "PLAIN");
    assert_renders(NULL, tools, "TOOLS<s>");
    assert_renders("chatml", tools, ""); /* the operator's choice applies to all requests */

    write_named("tool_use.jinja", "{% if %}");
    assert_refused(NULL, TEXT_INVALID, "");
}

static void templates_by_name(void **state)
{
    static const struct {
        const char *name, *want; /* text that the template renders; NULL = no such template */
    } cases[] = {{"rag", "RAG<b>"},
                 {"tool_use", "TOOLS<b>"},
                 {"listed", NULL},
                 {"", NULL},
                 {"../rag", NULL}};
    char err[TEXT_ERR_MAX] = "";
    struct text_template *t = NULL;
    fixture_write("chat_template.jinja", "PLAIN", 5);
    write_named("tool_use.jinja", "TOOLS{{ bos_token }}");
    write_named("rag.jinja", "RAG{{ bos_token }}");
    write_named("broken.jinja", "{% if %}");
    static const char config[] = "{\"bos_token\":\"<b>\",\"chat_template\":[{\"name\":\"listed\","
                                 "\"template\":\"x\"}]}";
    fixture_write("tokenizer_config.json", config, sizeof config - 1);
    assert_int_equal(text_template_open(fixture_dir, NULL, NULL, &t, err), TEXT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text_template *named = NULL;
        const int s = text_template_pick(t, cases[i].name, strlen(cases[i].name), &named, err);
        if (s != (cases[i].want ? TEXT_OK : TEXT_UNSUPPORTED))
            fail_msg("%s: %d, %s", cases[i].name, s, err);
        if (s != TEXT_OK)
            continue;
        char *out = render(named, none);
        assert_string_equal(out, cases[i].want);
        text_free(out);
        text_template_free(named);
    }
    struct text_template *broken = NULL;
    assert_int_equal(text_template_pick(t, "broken", 6, &broken, err), TEXT_INVALID);
    text_template_free(t);
}

static void a_template_on_one_line(void **state)
{
    assert_renders("{{ 'a' }}", none, "a");
    /* a text of two lines without braces is a template, too */
    assert_renders("a\nb", none, "a\nb");
    assert_renders("a{{ 1 }}\\nb\\tc\\\\d\\qe", none, "a1\nb\tc\\d\\qe");
    assert_renders("{{ \"\xC3\xA9\" }}\\u00e9", none, "\xC3\xA9\xC3\xA9");
    assert_renders("{% for m in messages %}{{ m.content }}{% endfor %}",
                   "{\"messages\":[{\"content\":\"hi\"}]}", "hi");
    assert_refused("{% if %}", TEXT_INVALID, "chat template");
    assert_refused("no/such/file.jinja", TEXT_IO,
                   "there is no file no/such/file.jinja and no built-in template");
    fixture_write("{mine}.jinja", "file", 4);
    assert_renders(fixture_path("{mine}.jinja"), none, "file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(additional_templates, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(templates_by_name, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_template_on_one_line, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
