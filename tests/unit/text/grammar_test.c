/* Grammars over builtin:bytes, where a token is a byte: what each allows at every place, where it
 * may end, and what is refused. */
#include "text_fixture.h"

enum { WORDS = 9, EOS = 257 };

static struct text_vocabulary *vocabulary;

static int open_vocabulary(void **state)
{
    struct text_tokenizer *t = NULL;
    char err[TEXT_ERR_MAX];
    int rc = text_tokenizer_open("builtin:bytes", NULL, &t, err);
    if (rc == TEXT_OK)
        rc = text_vocabulary_new(t, &vocabulary, err);
    text_tokenizer_free(t);
    return rc;
}

static int close_vocabulary(void **state)
{
    text_vocabulary_free(vocabulary);
    return 0;
}

static int compile(enum text_grammar_kind kind, const char *source, struct text_grammar **out,
                   char err[TEXT_ERR_MAX])
{
    *out = NULL;
    return text_grammar_compile(vocabulary, kind, source, strlen(source), out, err);
}

static struct text_matcher *matcher(enum text_grammar_kind kind, const char *source,
                                    const uint32_t *eos, size_t n_eos)
{
    struct text_grammar *g;
    struct text_matcher *m;
    char err[TEXT_ERR_MAX] = "";
    if (compile(kind, source, &g, err) != TEXT_OK)
        fail_msg("%s: %s", source, err);
    assert_int_equal(text_matcher_new(g, eos, n_eos, &m, err), TEXT_OK);
    text_grammar_free(g); /* may go before it */
    return m;
}

static bool has(const uint32_t *words, uint32_t id)
{
    return words[id / 32] >> (id % 32) & 1;
}

struct grammar_case {
    enum text_grammar_kind kind;
    const char *source, *text;
    int n_fit; /* bytes of the text that are allowed */
    bool ends; /* all are, and it may end there */
};

#define SCHEMA                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":3},"             \
    "\"b\":{\"enum\":[\"x\",\"y\"]}},\"required\":[\"a\"],\"additionalProperties\":false}"
#define ANSWERS "start: \"ja\" | \"nein\" | \"\\\"n\\\"\""
#define TAGS                                                                                       \
    "{\"structures\":[{\"begin\":\"<f>\",\"schema\":{\"type\":\"boolean\"},\"end\":\"</f>\"}],"    \
    "\"triggers\":[\"<f\"]}"

static const struct grammar_case cases[] = {
    {TEXT_GRAMMAR_JSON_SCHEMA, SCHEMA, "{\"a\": 12, \"b\": \"y\"}", 19, true},
    {TEXT_GRAMMAR_JSON_SCHEMA, SCHEMA, "{\"a\":3}", 7, true},
    {TEXT_GRAMMAR_JSON_SCHEMA, SCHEMA, "{\"a\":2}", 6, false},
    {TEXT_GRAMMAR_JSON_SCHEMA, SCHEMA, "{\"a\":", 5, false},
    {TEXT_GRAMMAR_JSON_SCHEMA, SCHEMA, "{\"b\":\"x\"}", 2, false},
    {TEXT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\"}", "{\"k\":[1,{\"z\":null}]}", 20, true},
    {TEXT_GRAMMAR_REGEX, "[a-c]{2,3}-?", "abc", 3, true},
    {TEXT_GRAMMAR_REGEX, "[a-c]{2,3}-?", "a", 1, false},
    {TEXT_GRAMMAR_REGEX, "[a-c]{2,3}-?", "abcc", 3, false},
    {TEXT_GRAMMAR_LARK, ANSWERS, "nein", 4, true},
    {TEXT_GRAMMAR_LARK, ANSWERS, "\"n\"", 3, true},
    {TEXT_GRAMMAR_LARK, ANSWERS, "nu", 1, false},
    {TEXT_GRAMMAR_STRUCTURAL_TAG, TAGS, "so <f>true</f> and", 18, true},
    {TEXT_GRAMMAR_STRUCTURAL_TAG, TAGS, "so <f>1", 6, false},
    {TEXT_GRAMMAR_STRUCTURAL_TAG, TAGS, "so <f>tr", 8, false},
};

static void texts_fit_as_their_grammar_says(void **state)
{
    char err[TEXT_ERR_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct grammar_case *c = &cases[i];
        struct text_matcher *m = matcher(c->kind, c->source, NULL, 0);
        uint32_t words[WORDS];
        int n = 0;
        for (;; n++) {
            uint32_t byte = (unsigned char)c->text[n];
            assert_int_equal(text_matcher_mask(m, words, WORDS, err), TEXT_OK);
            struct text_matcher *ahead = text_matcher_copy(m);
            if (byte != 0) /* the mask and the matcher say the same */
                assert_int_equal(text_matcher_accept(ahead, byte, err) == TEXT_OK,
                                 has(words, byte));
            text_matcher_free(ahead);
            if (byte == 0 || text_matcher_accept(m, byte, err) != TEXT_OK)
                break;
        }
        if (n != c->n_fit || (c->text[n] == 0 && has(words, EOS)) != c->ends)
            fail_msg("%s: %s fits for %d bytes, end %d", c->source, c->text, n, has(words, EOS));
        text_matcher_free(m);
    }
}

static void behind_the_end_only_the_end_comes(void **state)
{
    const uint32_t eos[] = {258, 70000};
    struct text_matcher *m = matcher(TEXT_GRAMMAR_REGEX, "ab", eos, 2);
    uint32_t words[WORDS];
    char err[TEXT_ERR_MAX];
    assert_int_equal(text_matcher_accept(m, 'a', err), TEXT_OK);
    assert_int_equal(text_matcher_accept(m, 'a', err), TEXT_INVALID);
    assert_false(text_matcher_is_done(m));
    assert_int_equal(text_matcher_accept(m, 'b', err), TEXT_OK);
    assert_int_equal(text_matcher_mask(m, words, WORDS, err), TEXT_OK);
    for (uint32_t id = 0; id < WORDS * 32; id++)
        assert_int_equal(has(words, id), id == EOS || id == 258);
    assert_int_equal(text_matcher_accept(m, 258, err), TEXT_OK);
    assert_true(text_matcher_is_done(m));
    text_matcher_free(m);
}

static char *repeated(const char *head, const char *part, size_t n, const char *tail)
{
    char *out = calloc(strlen(head) + n * strlen(part) + strlen(tail) + 1, 1), *at = out;
    at += sprintf(at, "%s", head);
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, "%s", part);
    strcpy(at, tail);
    return out;
}

static void what_is_no_grammar_is_refused_with_why(void **state)
{
    char *deep = repeated("", "[", 100000, ""), *parentheses = repeated("", "(", 65, "");
    char *long_one = repeated("", "a", (256 << 10) + 1, "");
    const struct {
        enum text_grammar_kind kind;
        const char *source;
        int rc;
    } bad[] = {
        {TEXT_GRAMMAR_JSON_SCHEMA, "{", TEXT_INVALID},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"nothing\"}", TEXT_INVALID},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}",
         TEXT_INVALID},
        {TEXT_GRAMMAR_REGEX, "(a", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "start: nothing", TEXT_INVALID},
        {TEXT_GRAMMAR_STRUCTURAL_TAG, "{\"structures\":[],\"triggers\":[]}", TEXT_INVALID},
        {TEXT_GRAMMAR_STRUCTURAL_TAG,
         "{\"structures\":[{\"begin\":\"<f>\",\"schema\":{},\"end\":\"\"}],\"triggers\":[\"x\"]}",
         TEXT_INVALID},
        {(enum text_grammar_kind)9, "a", TEXT_INVALID},
        {TEXT_GRAMMAR_JSON_SCHEMA, deep, TEXT_LIMIT},
        {TEXT_GRAMMAR_REGEX, parentheses, TEXT_LIMIT},
        {TEXT_GRAMMAR_REGEX, long_one, TEXT_LIMIT},
    };
    struct text_grammar *g;
    char err[TEXT_ERR_MAX];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err[0] = 0;
        int rc = compile(bad[i].kind, bad[i].source, &g, err);
        if (rc != bad[i].rc || !err[0] || strstr(err, "panic") || strstr(err, "<state>"))
            fail_msg("%zu: %d, %s", i, rc, err);
    }
    free(deep);
    free(parentheses);
    free(long_one);
}

/* Taken or refused: they come back, and what is taken has masks that do. */
static void bombs_come_back(void **state)
{
    char chain[200000], *at = chain;
    at += sprintf(at, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 3000; i++)
        at += sprintf(at, "\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"}]},", i, i + 1);
    sprintf(at, "\"d3000\":{\"type\":\"null\"}}}");
    char *options = repeated("{\"type\":\"string\",\"pattern\":\"", "(a|b|ab)?", 5000, "x\"}");
    char *arrays = repeated("", "{\"type\":\"array\",\"minItems\":1000,\"items\":", 20, "{}");
    char *closed = repeated(arrays, "}", 20, "");
    const struct {
        enum text_grammar_kind kind;
        const char *source;
    } bombs[] = {
        {TEXT_GRAMMAR_JSON_SCHEMA, chain},
        {TEXT_GRAMMAR_JSON_SCHEMA, options},
        {TEXT_GRAMMAR_JSON_SCHEMA, closed},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#\"}"},
        {TEXT_GRAMMAR_REGEX, "((a{1000}){1000}){1000}"},
        {TEXT_GRAMMAR_REGEX, "(a|aa)*b(.*x){200}"},
        {TEXT_GRAMMAR_LARK, "start: start start | \"a\""},
    };
    struct text_grammar *g;
    struct text_matcher *m;
    uint32_t words[WORDS];
    char err[TEXT_ERR_MAX] = "";
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        int rc = compile(bombs[i].kind, bombs[i].source, &g, err);
        print_message("bomb %zu: %d %s\n", i, rc, rc == TEXT_OK ? "" : err);
        assert_true(rc == TEXT_OK || rc == TEXT_INVALID || rc == TEXT_LIMIT);
        if (rc != TEXT_OK)
            continue;
        assert_int_equal(text_matcher_new(g, NULL, 0, &m, err), TEXT_OK);
        for (int k = 0; k < 300; k++) {
            rc = text_matcher_mask(m, words, WORDS, err);
            assert_true(rc == TEXT_OK || rc == TEXT_LIMIT);
            if (!has(words, 'a') || text_matcher_accept(m, 'a', err) != TEXT_OK)
                break;
        }
        text_matcher_free(m);
        text_grammar_free(g);
    }
    free(options);
    free(arrays);
    free(closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_fit_as_their_grammar_says),
        cmocka_unit_test(behind_the_end_only_the_end_comes),
        cmocka_unit_test(what_is_no_grammar_is_refused_with_why),
        cmocka_unit_test(bombs_come_back),
    };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
