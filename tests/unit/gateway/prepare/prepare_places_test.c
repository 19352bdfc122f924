/* Tests on which thread a request may be prepared. The parsed fields decide, not the spelling of
 * the body. `prepare_request` runs for the loop or for a compiling thread and returns a status.
 * Invariants: the loop never compiles a grammar, verdicts of compiles are remembered, and a
 * request compiles a bounded number of grammars. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/dialects/dialects.h"
#include "gateway/prepare/dialect.h"
#include "gateway/prepare/prepare.h"
#include "gateway/sagemaker/djl_dialects.h"

static struct text_tokenizer *tokenizer;
static struct text_template *chat;
static struct grammar_check *grammars;
static struct prepare_model model;

static int setup(void **state)
{
    static const char source[] =
        "{% for m in messages %}{{ m.content }}{% if m.content == 'slow' %}"
        "{% for i in range(99999) %}{% endfor %}{% endif %}{% endfor %}";
    char err[TEXT_ERR_MAX];
    if (text_tokenizer_open("builtin:bytes", NULL, &tokenizer, err) != TEXT_OK ||
        text_template_new(source, sizeof source - 1, &chat, err) != TEXT_OK)
        return 1;
    grammars = grammar_check_new(tokenizer, NULL);
    model = (struct prepare_model){.tokenizer = tokenizer,
                                   .chat_template = chat,
                                   .grammars = grammars,
                                   .max_model_len = 4096,
                                   .max_choices = 16,
                                   .policy = {.vocab_size = 259,
                                              .max_logprobs = 20,
                                              .trust_chat_template = true,
                                              .auto_tools = true}};
    return 0;
}

static int teardown(void **state)
{
    grammar_check_free(grammars);
    text_template_free(chat);
    text_tokenizer_free(tokenizer);
    return 0;
}

/* Prepares the body in this place. Returns the status: 0, PREPARE_WANTS_… or an HTTP status. */
static int prepare(const struct dialect *d, const char *body, enum prepare_place place)
{
    struct prepared p;
    struct prepare_model m = model;
    m.place = place;
    prepare_request(&m, d, str_from(body), &p);
    const int status = p.error.http_status;
    prepared_fini(&p);
    return status;
}

#define GRAMMAR(n)                                                                                 \
    "\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{\"maximum\":" n "}}"
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOL                                                                                       \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","    \
    "\"properties\":{\"a\":{\"type\":\"integer\"}}}}}]"

static const struct {
    const char *what;
    const struct dialect *dialect;
    const char *body;
    int on_loop; /* expected status on the loop before the compile */
    bool learnt; /* true when the loop may prepare the body after the compile */
} cases[] = {
    {"plain", &dialect_completions, "{\"prompt\":\"hi\"}", 0, true},
    {"plain chat", &dialect_chat, "{" HI "}", 0, true},
    {"a grammar", &dialect_completions,
     "{\"prompt\":\"hi\",\"response_format\":{" GRAMMAR("1") "}}", PREPARE_WANTS_COMPILING, true},
    {"spelled otherwise", &dialect_completions,
     "{\"prompt\":\"hi\",\"\\u0072esponse_forma\\u0074\":{" GRAMMAR("2") "}}",
     PREPARE_WANTS_COMPILING, true},
    {"a regular expression", &dialect_completions,
     "{\"prompt\":\"hi\",\"structured_outputs\":{\"regex\":\"a+\"}}", PREPARE_WANTS_COMPILING,
     true},
    {"an old name", &dialect_completions, "{\"prompt\":\"hi\",\"guided_choice\":[\"a\",\"b\"]}",
     PREPARE_WANTS_COMPILING, true},
    {"a forced call", &dialect_chat, "{" HI ",\"tools\":" TOOL ",\"tool_choice\":\"required\"}",
     PREPARE_WANTS_COMPILING, true},
    {"Responses", &dialect_responses,
     "{\"input\":\"hi\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"x\",\"schema\":"
     "{\"maximum\":3}}}}",
     PREPARE_WANTS_COMPILING, true},
    {"Messages", &dialect_messages,
     "{" HI ",\"max_tokens\":5,\"tool_choice\":{\"type\":\"any\"},\"tools\":[{\"name\":\"g\","
     "\"input_schema\":{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\"}}}}]}",
     PREPARE_WANTS_COMPILING, true},
    {"DJL", &dialect_djl, "{" HI ",\"response_format\":{" GRAMMAR("4") "}}",
     PREPARE_WANTS_COMPILING, true},
    {"an own template", &dialect_chat, "{" HI ",\"chat_template\":\"x{{ messages }}\"}",
     PREPARE_WANTS_COMPILING, false},
    {"an own template to be tokenized", &dialect_tokenize,
     "{" HI ",\"chat_template\":\"x{{ messages }}\"}", PREPARE_WANTS_COMPILING, false},
    {"a slow template", &dialect_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"slow\"}]}",
     PREPARE_WANTS_POOL, false},
    {"a slow template to be tokenized", &dialect_tokenize,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"slow\"}]}", PREPARE_WANTS_POOL, false},
};

static void test_places(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct dialect *d = cases[i].dialect;
        const int wants = cases[i].on_loop, on_pool = wants == PREPARE_WANTS_POOL ? 0 : wants;
        const int got[] = {prepare(d, cases[i].body, PREPARE_ON_LOOP),
                           prepare(d, cases[i].body, PREPARE_ON_POOL),
                           prepare(d, cases[i].body, PREPARE_COMPILING),
                           prepare(d, cases[i].body, PREPARE_ON_LOOP)};
        const int want[] = {wants, on_pool, 0, cases[i].learnt ? 0 : wants};
        for (int k = 0; k < 4; k++)
            if (got[k] != want[k])
                fail_msg("%s, step %d: %d, not %d", cases[i].what, k, got[k], want[k]);
    }
}

/* A source that was refused is refused again with the same message and without a compile. */
static void test_bad_verdicts(void **state)
{
    struct grammar_asker compiling = {.n_compiles_left = 1}, loop = {.place = PREPARE_ON_LOOP};
    char first[TEXT_ERR_MAX], again[TEXT_ERR_MAX];
    const struct str bad = STR("start: /(/");
    assert_int_equal(grammar_compiles(grammars, &loop, GRAMMAR_LARK, bad, first),
                     PREPARE_WANTS_COMPILING);
    assert_int_equal(grammar_compiles(grammars, &compiling, GRAMMAR_LARK, bad, first), 400);
    assert_int_equal(grammar_compiles(grammars, &loop, GRAMMAR_LARK, bad, again), 400);
    assert_string_equal(first, again);
    assert_non_null(strstr(first, "unclosed group"));
    /* The same text as another kind of grammar is another source. */
    assert_int_equal(grammar_compiles(grammars, &loop, GRAMMAR_REGEX, bad, again),
                     PREPARE_WANTS_COMPILING);
    /* The request has no compiles left. */
    assert_int_equal(grammar_compiles(grammars, &compiling, GRAMMAR_REGEX, bad, again), 503);
}

/* A verdict that is used often stays in the cache, however many other verdicts are added. */
static void test_verdicts_are_kept_by_use(void **state)
{
    struct grammar_asker compiling = {.n_compiles_left = 1000}, loop = {.place = PREPARE_ON_LOOP};
    char source[64], why[TEXT_ERR_MAX];
    const struct str kept = STR("start: \"kept\""), lost = STR("start: \"lost\"");
    assert_int_equal(grammar_compiles(grammars, &compiling, GRAMMAR_LARK, kept, why), 0);
    assert_int_equal(grammar_compiles(grammars, &compiling, GRAMMAR_LARK, lost, why), 0);
    for (int i = 0; i < 600; i++) {
        snprintf(source, sizeof source, "start: \"%d\"", i);
        assert_int_equal(
            grammar_compiles(grammars, &compiling, GRAMMAR_LARK, str_from(source), why), 0);
        assert_int_equal(grammar_compiles(grammars, &loop, GRAMMAR_LARK, kept, why), 0);
    }
    assert_int_equal(grammar_compiles(grammars, &loop, GRAMMAR_LARK, lost, why),
                     PREPARE_WANTS_COMPILING);
}

/* The search for the bad tool compiles a bounded number of grammars and skips known grammars.
 * The loop then gives the same error as the compiling thread. */
static void test_blame_is_bounded(void **state)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "{" HI ",\"tool_choice\":\"required\",\"tools\":[");
    for (int i = 0; i < 100; i++)
        strbuf_printf(&b,
                      "%s{\"type\":\"function\",\"function\":{\"name\":\"f%d\",\"parameters\":{"
                      "\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":"
                      "\"%s\"}}}}}",
                      i ? "," : "", i, i == 77 ? "(" : "a");
    strbuf_append_c(&b, "]}");
    strbuf_append(&b, "", 1);
    assert_int_equal(prepare(&dialect_chat, b.ptr, PREPARE_ON_LOOP), PREPARE_WANTS_COMPILING);
    for (int i = 0; i < 2; i++) {
        struct prepared p;
        struct prepare_model m = model;
        m.place = i == 0 ? PREPARE_COMPILING : PREPARE_ON_LOOP;
        prepare_request(&m, &dialect_chat, str_from(b.ptr), &p);
        assert_int_equal(p.error.http_status, 400);
        assert_non_null(strstr(p.error.message, "\"f77\""));
        prepared_fini(&p);
    }
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_places, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_verdicts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_verdicts_are_kept_by_use, setup, teardown),
        cmocka_unit_test_setup_teardown(test_blame_is_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
