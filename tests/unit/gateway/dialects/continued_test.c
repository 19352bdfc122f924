/* Tests `continue_final_message`: with every kind of template, the prompt ends with the text of
 * the last message. */
#include "gateway/dialects/openai_chat.h"
#include "gateway/fields/read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define EACH(body) "{% for m in messages %}<{{ m.role }}>" body "</{{ m.role }}>{% endfor %}"

static const char plain[] = EACH("{{ m.content }}");
static const char trims[] = EACH("{{ m.content | trim }}");
static const char trims_left[] = EACH("{{ m.content.lstrip() }}");
static const char thinks[] = EACH("{{ m.content.split('</think>')[-1].lstrip('\\n') }}");
static const char marked[] = EACH("{% generation %}{{ m.content }}{% endgeneration %}<end>");
static const char nothing[] = "{{ messages[0].content }}";
static const char raises[] =
    "{% if messages[-1].content == '' %}{{ raise_exception('empty') }}{% endif %}" EACH(
        "{{ m.content }}");

/* `content` is the last message's content, as JSON. `want` is the prompt; NULL = the request is
 * refused. `n_continued` is the number of bytes at the prompt's end that the answer continues. */
static const struct {
    const char *source, *content, *want;
    size_t n_continued;
} cases[] = {
    {plain, "'Once'", "<user>Go</user><assistant>Once", 4},
    {plain, "'Once \\n\\n'", "<user>Go</user><assistant>Once \n\n", 7},
    {plain, "' Once'", "<user>Go</user><assistant> Once", 5},
    {plain, "''", "<user>Go</user><assistant>", 0},
    {plain, "' '", "<user>Go</user><assistant> ", 1},
    {plain, "'Go'", "<user>Go</user><assistant>Go", 2},
    {plain, "'</assistant>'", "<user>Go</user><assistant></assistant>", 12},
    {plain, "[{'type':'text','text':'a'},{'type':'text','text':'b '}]",
     "<user>Go</user><assistant>a\nb ", 4},
    {plain, "'COXSWAIN_GOES_ON_HERE x'", "<user>Go</user><assistant>COXSWAIN_GOES_ON_HERE x", 23},
    {plain, "'\xC3\xA9\xE2\x80\xA8'", "<user>Go</user><assistant>\xC3\xA9\xE2\x80\xA8", 5},
    {plain, "null", NULL, 0},
    {trims, "' Once \\n'", "<user>Go</user><assistant>Once \n", 6},
    {trims, "''", "<user>Go</user><assistant>", 0},
    {trims, "' \\n'", "<user>Go</user><assistant>", 0},
    {trims_left, "'\\nOnce\\n'", "<user>Go</user><assistant>Once\n", 5},
    {thinks, "'<think>a</think>\\n\\nOnce '", "<user>Go</user><assistant>Once ", 5},
    {marked, "'Once '", "<user>Go<end></user><assistant>Once ", 5},
    {raises, "''", "<user>Go</user><assistant>", 0},
    {nothing, "'Once'", NULL, 0},
};

static void check(const char *source, const char *content, const char *want, size_t n_continued)
{
    static struct prepare_model model = {.policy = {.max_logprobs = 20, .auto_tools = true}};
    char err[TEXT_ERR_MAX], body[512];
    struct text_template *t;
    struct params p;
    struct prompt_list l = {0};
    struct api_error e = {0};
    assert_int_equal(text_template_new(source, strlen(source), &t, err), TEXT_OK);
    model.chat_template = t;
    snprintf(body, sizeof body,
             "{'messages':[{'role':'user','content':'Go'},{'role':'assistant','content':%s}],"
             "'continue_final_message':true,'add_generation_prompt':false}",
             content);
    for (char *c = body; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    assert_true(
        params_init(&p, API_CHAT, params_parse_json(str_from(body), &e), &model.policy, &e));
    const bool ok = openai_chat_prompt(&p, &model, &l, &e);
    if (ok != (want != NULL) || (!ok && strcmp(e.param, "continue_final_message") != 0))
        fail_msg("%s: %s: %d %s %s", source, body, ok, e.param, e.message);
    if (ok && (l.items[0].text.len != strlen(want) ||
               memcmp(l.items[0].text.ptr, want, strlen(want)) != 0 ||
               l.items[0].n_continued != n_continued))
        fail_msg("%s: %s: \"%.*s\", %zu", source, body, (int)l.items[0].text.len,
                 l.items[0].text.ptr, l.items[0].n_continued);
    prompt_list_fini(&l);
    params_fini(&p);
    text_template_free(t);
}

static void test_continued(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(cases[i].source, cases[i].content, cases[i].want, cases[i].n_continued);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_continued)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
