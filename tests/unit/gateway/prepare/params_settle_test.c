/* Tests the part of a body that a request keeps while it is answered: the values that answers
 * and parsers read, without the rest of the JSON tree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/dialects/dialects.h"
#include "gateway/prepare/dialect.h"
#include "gateway/prepare/prepare.h"
#include "gateway/tools/set.h"

enum { N_VALUES = 2000 };

static struct text_tokenizer *tokenizer;
static struct text_template *chat;
static struct prepare_model model;

static int setup(void **state)
{
    static const char source[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    char err[TEXT_ERR_MAX];
    if (text_tokenizer_open("builtin:bytes", NULL, &tokenizer, err) != TEXT_OK ||
        text_template_new(source, sizeof source - 1, &chat, err) != TEXT_OK)
        return 1;
    model = (struct prepare_model){
        .tokenizer = tokenizer,
        .chat_template = chat,
        .max_model_len = 4096,
        .max_choices = 16,
        .pooling = POOLING_LAST,
        .place = PREPARE_COMPILING,
        .policy = {
            .vocab_size = 259, .max_logprobs = 20, .unknown = UNKNOWN_IGNORE, .auto_tools = true}};
    return 0;
}

static int teardown(void **state)
{
    text_template_free(chat);
    text_tokenizer_free(tokenizer);
    return 0;
}

/* Prepares the body with a long list in place of @. The body is freed before the result is read. */
static void prepare(const struct dialect *d, const char *body, struct prepared *out)
{
    struct strbuf b;
    const char *at = strchr(body, '@');
    strbuf_init(&b, 0);
    strbuf_append(&b, body, at ? (size_t)(at - body) : strlen(body));
    for (uint32_t i = 0; at && i < N_VALUES; i++)
        strbuf_append_c(&b, i ? ",{}" : "[{}");
    strbuf_append_c(&b, at ? "]" : "");
    strbuf_append_c(&b, at ? at + 1 : "");
    prepare_request(&model, d, strbuf_str(&b), out);
    strbuf_fini(&b);
    if (out->error.http_status)
        fail_msg("%s: %s", body, out->error.message);
}

#define HI  "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define ALL "\"model\":\"m\",\"cache_salt\":\"s\",\"request_id\":\"r\""

/* Lists that change no answer, or that only the prompt needs, are freed in every kind of
 * request. */
static void test_what_nobody_reads_goes(void **state)
{
    static const struct {
        const struct dialect *dialect;
        const char *body;
    } cases[] = {
        {&dialect_completions, "{\"prompt\":\"hi\",\"metadata\":{\"x\":@}}"},
        {&dialect_completions, "{\"prompt\":\"hi\",\"nobody_knows\":@}"},
        {&dialect_chat, "{" HI ",\"metadata\":{\"x\":@}}"},
        {&dialect_chat, "{" HI ",\"documents\":@}"},
        {&dialect_chat, "{" HI ",\"chat_template_kwargs\":{\"x\":@}}"},
        {&dialect_chat, "{" HI ",\"stop_sequences\":@}"},
        {&dialect_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\",\"usage\":@}]}"},
        {&dialect_messages, "{\"max_tokens\":9," HI ",\"stop\":@}"},
        {&dialect_embeddings, "{\"input\":\"hi\",\"user\":\"u\",\"x\":@}"},
        {&dialect_responses, "{\"input\":\"hi\",\"client_metadata\":{\"x\":@}}"},
        {&dialect_tokenize, "{\"prompt\":\"hi\",\"x\":@}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct prepared p;
        prepare(cases[i].dialect, cases[i].body, &p);
        if (p.params.tree_bytes == 0 || p.params.tree_bytes > 4096)
            fail_msg("%s: %llu bytes", cases[i].body, (unsigned long long)p.params.tree_bytes);
        assert_int_equal(p.prompts.n, 1);
        prepared_fini(&p);
    }
}

static bool is(struct str s, const char *want)
{
    return str_eq_c(s, want);
}

static void test_what_answers_say_stays(void **state)
{
    struct prepared p;
    prepare(&dialect_completions,
            "{" ALL ",\"prompt\":\"hi\",\"stop\":[\"a\",\"b\"],\"user\":\"u\"}", &p);
    assert_true(is(p.params.model, "m") && is(p.params.cache_salt, "s"));
    assert_true(is(p.params.request_id, "r"));
    assert_true(p.params.n_stops == 2 && is(p.params.stops[0], "a") && is(p.params.stops[1], "b"));
    prepared_fini(&p);

    prepare(&dialect_messages,
            "{\"max_tokens\":9," HI ",\"model\":\"m\",\"stop_sequences\":[\"z\"]}", &p);
    assert_true(is(p.params.model, "m") && p.params.n_stops == 1 && is(p.params.stops[0], "z"));
    prepared_fini(&p);

    prepare(&dialect_responses, "{\"input\":\"hi\",\"metadata\":{\"a\":\"b\"}}", &p);
    assert_non_null(strstr(p.params.asked.ptr, "\"metadata\":{\"a\":\"b\"}"));
    prepared_fini(&p);
}

#define FUNCTION(name, schema)                                                                     \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" schema "}}"

/* Tools are kept, because answer parsers read them. All values of large tools are counted as
 * memory of the request. */
static void test_tools_stay_and_are_counted(void **state)
{
    struct prepared p;
    prepare(&dialect_chat,
            "{" HI ",\"tools\":[" FUNCTION("f", "{\"type\":\"object\"}") "," FUNCTION(
                "g", "{\"type\":\"object\",\"examples\":@}") "],\"tool_choice\":\"auto\"}",
            &p);
    assert_int_equal(json_array_size(p.params.tools), 2);
    assert_true(p.params.tree_bytes > N_VALUES * 200);
    prepared_fini(&p);

    prepare(&dialect_chat,
            "{" HI ",\"tools\":[" FUNCTION(
                "f", "{\"type\":\"object\"}") ",{\"type\":\"custom\","
                                              "\"custom\":{\"name\":\"c\"}}],\"tool_choice\":{"
                                              "\"type\":\"function\",\"function\":"
                                              "{\"name\":\"f\"}}}",
            &p);
    assert_true(is(p.params.tool_name, "f") && p.params.tool_choice == TOOL_CHOICE_REQUIRED);
    const struct tool_origin o = tool_origin_of(&p.params, STR("c"));
    assert_true(o.form == TOOL_IS_CUSTOM && is(o.name, "c"));
    prepared_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_nobody_reads_goes),
        cmocka_unit_test(test_what_answers_say_stays),
        cmocka_unit_test(test_tools_stay_and_are_counted),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
