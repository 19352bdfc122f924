/* What models write, as parts, whatever the cuts: every case is fed whole, cut in two at every
 * byte, and byte by byte. */
#include "gateway/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* want: parts as R(text) C(text) [name](arguments), in order. */
/* CONTINUED: the prompt but its first byte begins the answer. */
enum { ONE_CALL = 1, DROP_REASONING = 2, CONTINUED = 4 };
struct answer_case {
    unsigned flags;
    const char *reasoning, *tools, *prompt, *text, *want;
};

#define CALL(name, args)                                                                           \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " args "}\n</tool_call>"

static const struct answer_case cases[] = {
    {0, NULL, NULL, "", "<think>a</think>", "C(<think>a</think>)"},
    {0, "qwen3", NULL, "", "<think>\na\n</think>\n\nb", "R(\na\n)C(\n\nb)"},
    {0, "qwen3", NULL, "", "\n <think>a</think>b", "R(a)C(b)"},
    {0, "qwen3", NULL, "", "b</think>c", "C(b</think>c)"},
    {0, "qwen3", NULL, "", "<thin", "C(<thin)"},
    {0, "qwen3", NULL, "", "  ", "C(  )"},
    {0, "qwen3", NULL, "x<think>\n", "a</think>b", "R(a)C(b)"},
    {0, "qwen3", NULL, "<think>\n\n</think>\n\n", "<think>b", "C(<think>b)"},
    {0, "qwen3", NULL, "", "<think>a<b></think", "R(a<b></think)"},
    {DROP_REASONING, "qwen3", NULL, "", "<think>a</think>b", "C(b)"},
    {0, "deepseek_r1", NULL, "", "a</think>b", "R(a)C(b)"},
    {0, "deepseek_r1", NULL, "", "<think>a</think>b<think>", "R(a)C(b<think>)"},
    {CONTINUED, "deepseek_r1", NULL, "x<think>a", "b</think>c", "R(b)C(c)"},
    {CONTINUED, "deepseek_r1", NULL, "x<think>a</think>b", "c", "C(c)"},
    {CONTINUED, "deepseek_r1", NULL, "xOnce", " upon", "C( upon)"},
    {0, "deepseek_r1", NULL, "", "no end", "R(no end)"},
    {0, NULL, "hermes", "", "plain <b> text", "C(plain <b> text)"},
    {0, NULL, "hermes", "", CALL("f", "{\"a\": 1}"), "[f]({\"a\": 1})"},
    {0, NULL, "hermes", "", "say\n" CALL("f", "{}"), "C(say\n)[f]({})"},
    {0, NULL, "hermes", "",
     " \n" CALL("f", "{\"s\": \"}</tool_call>\\\"\"}") "\n" CALL("g", "[1]") "\n",
     "[f]({\"s\": \"}</tool_call>\\\"\"})[g]([1])"},
    {0, NULL, "hermes", "", CALL("f", "{}") "\nthen", "[f]({})C(\nthen)"},
    {ONE_CALL, NULL, "hermes", "", CALL("f", "{}") CALL("g", "{}"), "[f]({})"},
    {0, NULL, "hermes", "",
     "<tool_call>{\"arguments\": {\"a\": [{}]}, \"name\": \"f\"}</tool_call>",
     "[f]({\"a\": [{}]})"},
    {0, NULL, "hermes", "", "<tool_call>{\"name\": \"f\", \"parameters\": 12.5}</tool_call>",
     "[f](12.5)"},
    {0, NULL, "hermes", "", "<tool_call>{\"name\": \"f\"}</tool_call>", "[f]({})"},
    {0, NULL, "hermes", "", "<tool_call>not json</tool_call>",
     "C(<tool_call>not json</tool_call>)"},
    {0, NULL, "hermes", "", "<tool_call>{\"name\": 3, \"x\": 1}</tool_call>",
     "C(<tool_call>{\"name\": 3, \"x\": 1}</tool_call>)"},
    {0, NULL, "hermes", "", "a<tool_call>{\"name\": \"f\", \"argum",
     "C(a<tool_call>{\"name\": \"f\", \"argum)"},
    {0, NULL, "hermes", "", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"unfin",
     "[f]({\"a\": \"unfin)"},
    {0, NULL, "hermes", "", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1</tool_call>b",
     "[f]({\"a\": 1)C(b)"},
    {0, NULL, "hermes", "", "x <tool_", "C(x <tool_)"},
    {0, "qwen3", "hermes", "", "<think>" CALL("no", "{}") "</think>\n\n" CALL("f", "{}"),
     "R(" CALL("no", "{}") ")[f]({})"},
    {0, "qwen3", "hermes", "", "<think>a</think>\n\nb" CALL("f", "{}"), "R(a)C(\n\nb)[f]({})"},
};

/* Everything so far, neighbours of one kind joined: what a client has put together. */
struct heard {
    char text[2048];
    size_t n;
    int kind; /* of the last part, -1: none */
    uint32_t i_call;
};

static void say(struct heard *h, const char *s, size_t n)
{
    assert_true(h->n + n + 4 < sizeof h->text);
    memcpy(h->text + h->n, s, n);
    h->n += n;
    h->text[h->n] = '\0';
}

static void hear(struct heard *h, const struct answer_delta *d)
{
    for (uint32_t i = 0; i < d->n_parts; i++) {
        const struct answer_part *p = &d->parts[i];
        bool same = h->kind == (int)p->kind && h->i_call == p->i_call;
        if (!same && h->kind >= 0 && h->kind != ANSWER_CALL)
            say(h, ")", 1);
        if (p->kind == ANSWER_CALL) {
            assert_true(p->id.len > 16 && p->text.len == 0);
            say(h, "[", 1);
            say(h, p->name.ptr, p->name.len);
            say(h, "]", 1);
        } else {
            assert_true(p->text.len > 0);
            if (!same)
                say(h,
                    p->kind == ANSWER_REASONING ? "R("
                    : p->kind == ANSWER_CONTENT ? "C("
                                                : "(",
                    p->kind == ANSWER_ARGUMENTS ? 1 : 2);
            say(h, p->text.ptr, p->text.len);
        }
        h->kind = (int)p->kind;
        h->i_call = p->i_call;
    }
}

/* Cut after `at` bytes; with every: after each. */
static void feed(const struct answer_case *c, size_t at, bool every, struct heard *h,
                 enum answer_finish *finish)
{
    struct answer_rules rules = {
        .reasoning = c->reasoning ? reasoning_parser_find(c->reasoning) : NULL,
        .tools = c->tools ? tool_parser_find(c->tools) : NULL,
        .one_call = (c->flags & ONE_CALL) != 0,
        .drop_reasoning = (c->flags & DROP_REASONING) != 0,
        .call_prefix = "call-",
        .id_hi = 1,
        .id_lo = 2,
    };
    struct answer a;
    size_t n = strlen(c->text);
    *h = (struct heard){.kind = -1};
    struct prompt prompt = {.text = str_from(c->prompt)};
    if (c->flags & CONTINUED)
        prompt.n_continued = prompt.text.len - 1;
    answer_init(&a, &rules, 0, &prompt);
    for (size_t i = 0; i < n;) {
        size_t k = every ? 1 : i < at ? at - i : n - i;
        struct answer_delta d = {.finish = ANSWER_STOP};
        char piece[512]; /* not what lies behind it */
        memcpy(piece, c->text + i, k);
        answer_feed(&a, (struct str){piece, k}, false, &d);
        hear(h, &d);
        i += k;
    }
    struct answer_delta last = {.finish = ANSWER_STOP};
    answer_feed(&a, STR(""), true, &last);
    hear(h, &last);
    if (h->kind >= 0 && h->kind != ANSWER_CALL)
        say(h, ")", 1);
    *finish = last.finish;
    answer_fini(&a);
}

static void test_parsers(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct answer_case *c = &cases[i];
        size_t n = strlen(c->text);
        for (size_t at = 0; at <= n + 1; at++) {
            struct heard h;
            enum answer_finish finish;
            feed(c, at, at == n + 1, &h, &finish);
            if (strcmp(h.text, c->want) != 0)
                fail_msg("%s, cut at %zu: %s, want %s", c->text, at, h.text, c->want);
            assert_int_equal(finish, strchr(c->want, '[') && strstr(c->want, "](")
                                         ? ANSWER_TOOL_CALLS
                                         : ANSWER_STOP);
        }
    }
}

/* A reply that ended for its length did so in the middle of a call, too. */
static void test_finish(void **state)
{
    struct answer_rules rules = {.tools = tool_parser_find("hermes"), .call_prefix = "call-"};
    struct answer a;
    struct answer_delta d = {.finish = ANSWER_LENGTH};
    answer_init(&a, &rules, 3, &(struct prompt){0});
    answer_feed(&a, STR("<tool_call>{\"name\":\"f\",\"arguments\":{"), true, &d);
    assert_int_equal(d.n_parts, 2);
    assert_int_equal(d.finish, ANSWER_LENGTH);
    assert_int_equal(d.parts[0].id.len, 5 + 32);
    assert_memory_equal(d.parts[0].id.ptr, "call-00000000000000000000000300000000", 37);
    answer_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parsers),
                                       cmocka_unit_test(test_finish)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
