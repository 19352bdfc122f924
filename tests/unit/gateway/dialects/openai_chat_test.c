/* Tests the bodies of OpenAI's chat completions: the messages that the chat template gets, and the
 * prompts that result. `dialect_chat` reads a body into `struct params`, and a template renders
 * it. Invariant: JSON inside strings, such as a call's arguments, counts towards the body's limits
 * on values and depth. */
#include "gateway/dialects/openai_chat.h"
#include "gateway/fields/read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct context_case {
    /* `want`: the context of the template, or a part of the error's message */
    const char *body, *want;
    bool ok;
};

#define MESSAGES(m) "{\"messages\":[" m "]}"
#define CONTEXT(m)  "{\"messages\":[" m "],\"add_generation_prompt\":true}"

static const struct context_case cases[] = {
    {MESSAGES("{\"role\":\"user\",\"content\":\"hi\"}"),
     CONTEXT("{\"role\":\"user\",\"content\":\"hi\"}"), true},
    {MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
              "{\"type\":\"text\",\"text\":\"b\"}]}"),
     CONTEXT("{\"role\":\"user\",\"content\":\"a\\nb\"}"), true},
    {MESSAGES("{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[]}"),
     CONTEXT("{\"role\":\"assistant\",\"content\":\"x\"}"), true},
    {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
              "\"arguments\":\"{\\\"a\\\":1}\"}},{\"function\":{\"arguments\":\"\"}}]}"),
     CONTEXT("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
             "\"arguments\":{\"a\":1}}},{\"function\":{\"arguments\":{}}}]}"),
     true},
    {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"{\"}}]}"),
     CONTEXT("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"{\"}}]}"),
     true},
    {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"null\"}}]}"),
     CONTEXT("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":{}}}]}"), true},
    {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":3}"), "must be a list", false},
    /* a call of a custom tool becomes a call of the function that stands for the tool */
    {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"custom\","
              "\"custom\":{\"name\":\"t\",\"input\":\"a \\\"b\\\"\\u0000\"}}]}"),
     CONTEXT("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\","
             "\"function\":{\"name\":\"t\",\"arguments\":{\"input\":\"a \\\"b\\\"\\u0000\"}}}]}"),
     true},
    {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"function\",\"custom\":null,"
              "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}"),
     CONTEXT("{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"function\","
             "\"function\":{\"name\":\"f\",\"arguments\":{}}}]}"),
     true},
    {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"custom\"}]}"),
     "messages[0].tool_calls[0] is of type \"custom\", so it must have a member custom", false},
    {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"custom\",\"custom\":{"
              "\"name\":\"t\",\"input\":{}}}]}"),
     "must have a member custom with a name and an input, both strings", false},
    {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[{\"custom\":{\"name\":\"t\","
              "\"input\":\"a\"}}]}"),
     "but its type is not \"custom\"", false},
    {MESSAGES("{\"role\":\"assistant\",\"content\":\"x\",\"reasoning\":\"r\"}"),
     CONTEXT("{\"role\":\"assistant\",\"content\":\"x\",\"reasoning\":\"r\","
             "\"reasoning_content\":\"r\"}"),
     true},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"reasoning_effort\":\"none\","
     "\"documents\":[1],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"add_generation_prompt\":true,"
     "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"documents\":[1],"
     "\"reasoning_effort\":\"none\",\"enable_thinking\":false}",
     true},
    {MESSAGES("{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"x\"}]}"),
     CONTEXT("{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"x\"}]}"), true},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"add_generation_prompt\":false,"
     "\"chat_template_kwargs\":{\"enable_thinking\":false,\"messages\":null}}",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"add_generation_prompt\":false,"
     "\"enable_thinking\":false}",
     true},
    {MESSAGES(""), "1 to 4096 messages", false},
    {MESSAGES("3"), "messages[0] must be an object", false},
    {MESSAGES("{\"content\":\"x\"}"), "with a role", false},
    {MESSAGES("{\"role\":\"robot\",\"content\":\"x\"}"), "\"robot\" is not one of", false},
    {MESSAGES("{\"role\":\"user\"}"), "content must be", false},
    {MESSAGES("{\"role\":\"user\",\"content\":3}"), "content must be", false},
    {MESSAGES("{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"user\",\"content\":[{\"type\":"
              "\"image_url\",\"image_url\":{\"url\":\"data:\"}}]}"),
     "messages[1].content has a part of type \"image_url\", which is not supported: this model "
     "accepts text only.",
     false},
    {MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}"), "must have a text", false},
    {MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"tool_use\"}]}"),
     "this server reads parts of type text, refusal, thinking and reasoning", false},
    /* Text parts with other type names are text. In an assistant's message a thinking part is
     * reasoning; in a system message it is text. */
    {MESSAGES(
         "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":"
         "\"text\",\"text\":\"t\"}]},{\"type\":\"output_text\",\"text\":\"x\"},{\"type\":\"text\","
         "\"text\":\"y\"}]}"),
     CONTEXT("{\"role\":\"assistant\",\"content\":\"x\\ny\",\"reasoning\":\"t\","
             "\"reasoning_content\":\"t\"}"),
     true},
    {MESSAGES("{\"role\":\"assistant\",\"reasoning\":\"own\",\"content\":[{\"type\":\"reasoning\","
              "\"text\":\"t\"}]}"),
     CONTEXT("{\"role\":\"assistant\",\"reasoning\":\"own\",\"content\":\"\",\"reasoning_content\":"
             "\"own\"}"),
     true},
    {MESSAGES("{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":"
              "\"thinking\",\"thinking\":\"t\"}]}"),
     CONTEXT("{\"role\":\"system\",\"content\":\"x\\nt\"}"), true},
    /* the tool has returned nothing */
    {MESSAGES("{\"role\":\"tool\",\"tool_call_id\":\"1\"}"),
     CONTEXT("{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"\"}"), true},
    {MESSAGES("{\"role\":\"user\",\"content\":[7]}"), "must be an object", false},
};

static struct prepare_model model = {.policy = {.max_logprobs = 20, .auto_tools = true}};

static void test_context(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct params p;
        struct api_error e = {0};
        struct strbuf b;
        strbuf_init(&b, 0);
        assert_true(params_init(&p, API_CHAT, params_parse_json(str_from(cases[i].body), &e),
                                &model.policy, &e));
        bool ok = openai_chat_context(&p, model.tokenizer, &b, &e);
        if (ok != cases[i].ok || (ok ? strcmp(strbuf_str(&b).ptr, cases[i].want) != 0
                                     : !strstr(e.message, cases[i].want)))
            fail_msg("%s: %s %s", cases[i].body, strbuf_str(&b).ptr, e.message);
        if (!ok)
            assert_string_equal(e.param, "messages");
        params_fini(&p);
        strbuf_fini(&b);
    }
}

/* Appends a call with the arguments {"a":[{},{},…]}, as text. */
static void add_arguments(struct strbuf *b, unsigned n)
{
    strbuf_append_c(b, "{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":[{}");
    for (unsigned i = 0; i < n; i++)
        strbuf_append_c(b, ",{}");
    strbuf_append_c(b, "]}\"}}");
}

/* JSON texts inside a body share the body's limit on values. A text beyond the limit stays a
 * string. */
static void test_arguments_are_bounded(void **state)
{
    static const struct {
        unsigned n[2];
        bool is_text[2];
    } sizes[] = {{{1000, 1000}, {false, false}},
                 {{200000, 200000}, {false, false}},
                 {{400000, 400000}, {false, true}},
                 {{5400000, 1000}, {true, false}}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct params p;
        struct api_error e = {0};
        struct strbuf b, out;
        strbuf_init(&b, 0);
        strbuf_init(&out, 0);
        strbuf_append_c(&b, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[");
        add_arguments(&b, sizes[i].n[0]);
        strbuf_append_c(&b, ",");
        add_arguments(&b, sizes[i].n[1]);
        strbuf_append_c(&b, "]}]}");
        assert_true(
            params_init(&p, API_CHAT, params_parse_json(strbuf_str(&b), &e), &model.policy, &e));
        assert_true(openai_chat_context(&p, model.tokenizer, &out, &e));
        const char *at = strbuf_str(&out).ptr;
        for (size_t k = 0; k < 2; k++) {
            at = strstr(at + 1, "\"arguments\":");
            assert_non_null(at);
            assert_int_equal(at[strlen("\"arguments\":")] == '"', sizes[i].is_text[k]);
        }
        params_fini(&p);
        strbuf_fini(&b);
        strbuf_fini(&out);
    }
}

static void test_deep_arguments_stay_text(void **state)
{
    for (uint32_t depth = PARAMS_MAX_DEPTH; depth <= PARAMS_MAX_DEPTH + 1; depth++) {
        struct params p;
        struct api_error e = {0};
        struct strbuf b, out;
        strbuf_init(&b, 0);
        strbuf_init(&out, 0);
        strbuf_append_c(&b, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{"
                            "\"arguments\":\"");
        for (uint32_t i = 0; i < depth; i++)
            strbuf_append_c(&b, "[");
        for (uint32_t i = 0; i < depth; i++)
            strbuf_append_c(&b, "]");
        strbuf_append_c(&b, "\"}}]}]}");
        assert_true(
            params_init(&p, API_CHAT, params_parse_json(strbuf_str(&b), &e), &model.policy, &e));
        assert_true(openai_chat_context(&p, model.tokenizer, &out, &e));
        assert_int_equal(strstr(strbuf_str(&out).ptr, "\"arguments\":\"") != NULL,
                         depth > PARAMS_MAX_DEPTH);
        params_fini(&p);
        strbuf_fini(&b);
        strbuf_fini(&out);
    }
}

/* The template of this test writes <role>content</role> and then opens the assistant's message
 * as the generation prompt. */
static void test_prompt(void **state)
{
    static const char source[] =
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}";
    static const struct {
        const char *body, *want;
    } prompts[] = {
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", "<user>hi</user><assistant>"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"go\"},{\"role\":\"assistant\","
         "\"content\":\"Once go \"}],\"continue_final_message\":true}",
         "<user>go</user><assistant>Once go "},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"  \"}],\"continue_final_message\":true}",
         "<user>  "},
    };
    struct text_template *tmpl;
    char err[TEXT_ERR_MAX];
    assert_int_equal(text_template_new(source, sizeof source - 1, &tmpl, err), TEXT_OK);
    struct prepare_model m = model;
    m.chat_template = tmpl;
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        struct params p;
        struct prompt_list l = {0};
        struct api_error e = {0};
        assert_true(params_init(&p, API_CHAT, params_parse_json(str_from(prompts[i].body), &e),
                                &m.policy, &e));
        bool ok = openai_chat_prompt(&p, &m, &l, &e);
        assert_int_equal(ok, prompts[i].want != NULL);
        if (ok) {
            struct str want = str_from(prompts[i].want);
            assert_int_equal(l.items[0].text.len, want.len);
            assert_memory_equal(l.items[0].text.ptr, want.ptr, want.len);
        }
        prompt_list_fini(&l);
        params_fini(&p);
    }
    text_template_free(tmpl);
}

/* The test has templates of model families, reduced to their calls. Most write the arguments
 * object as JSON. DeepSeek's template joins strings. */
static void test_arguments(void **state)
{
#define CALLS "{% for c in messages[0].tool_calls %}{% set f = c.function %}"
    static const struct {
        const char *source, *want;
    } templates[] = {
        {CALLS "{{ f.arguments | tojson }}{% endfor %}", "{\"a\": \"b\"}"},
        {CALLS "{% for k, v in f.arguments | items %}<parameter={{ k }}>{{ v }}{% endfor %}"
               "{% endfor %}",
         "<parameter=a>b"},
        {CALLS "{{ f.name + '\\n' + f.arguments + '\\n' }}{% endfor %}", "f\n{\"a\":\"b\"}\n"},
        {CALLS "{{ f.arguments | tojson }}{{ raise_exception('no') }}{% endfor %}", NULL},
        /* An answer may consist of calls alone. Gemma's template then iterates over the content.
         * Other templates test whether the content is none. */
        {"{% for x in messages[0].content %}{{ x }}{% endfor %}" CALLS
         "{{ f.arguments | tojson }}{% endfor %}",
         "{\"a\": \"b\"}"},
        {"{% for x in messages[0].content %}{{ x }}{% endfor %}" CALLS "{{ '-' + f.arguments }}"
         "{% endfor %}",
         "-{\"a\":\"b\"}"},
        {"{% if messages[0].content is none %}none {% endif %}" CALLS
         "{{ f.arguments | tojson }}{% endfor %}",
         "none {\"a\": \"b\"}"},
    };
    static const char body[] =
        "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"x\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":\\\"b\\\"}\"}}]}]}";
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        struct text_template *tmpl;
        char err[TEXT_ERR_MAX];
        struct prepare_model m = model;
        struct params p;
        struct prompt_list l = {0};
        struct api_error e = {0};
        assert_int_equal(
            text_template_new(templates[i].source, strlen(templates[i].source), &tmpl, err),
            TEXT_OK);
        m.chat_template = tmpl;
        assert_true(
            params_init(&p, API_CHAT, params_parse_json(str_from(body), &e), &m.policy, &e));
        bool ok = openai_chat_prompt(&p, &m, &l, &e);
        if (templates[i].want && !ok)
            fail_msg("%s: %s", templates[i].source, e.message);
        assert_int_equal(ok, templates[i].want != NULL);
        if (ok) {
            assert_int_equal(l.items[0].text.len, strlen(templates[i].want));
            assert_memory_equal(l.items[0].text.ptr, templates[i].want, l.items[0].text.len);
        }
        prompt_list_fini(&l);
        params_fini(&p);
        text_template_free(tmpl);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context), cmocka_unit_test(test_arguments_are_bounded),
        cmocka_unit_test(test_deep_arguments_stay_text), cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_arguments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
