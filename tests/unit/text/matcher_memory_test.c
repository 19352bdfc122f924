/* Tests that the memory of grammars and matchers is counted, over builtin:bytes. Copies of a
 * matcher leave no memory behind. A matcher that needs too much memory ends with an error about
 * that. A replay passes at least up to the last position of the original. */
#include "text_fixture.h"

enum { WORDS = 9, EOS = 257, ALTERNATIVES = 180 };

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

static struct text_grammar *compile(enum text_grammar_kind kind, const char *source)
{
    struct text_grammar *g = NULL;
    char err[TEXT_ERR_MAX] = "";
    if (text_grammar_compile(vocabulary, kind, source, strlen(source), &g, err) != TEXT_OK)
        fail_msg("%s: %s", source, err);
    return g;
}

static struct text_matcher *matcher(const struct text_grammar *g)
{
    static const uint32_t eos = EOS;
    struct text_matcher *m = NULL;
    char err[TEXT_ERR_MAX] = "";
    assert_int_equal(text_matcher_new(g, &eos, 1, &m, err), TEXT_OK);
    return m;
}

static bool mask(struct text_matcher *m, uint32_t words[WORDS], char err[TEXT_ERR_MAX])
{
    int rc = text_matcher_mask(m, words, WORDS, err);
    assert_true(rc == TEXT_OK || rc == TEXT_LIMIT);
    return rc == TEXT_OK;
}

static void take(struct text_matcher *m, const char *around, uint32_t i)
{
    char err[TEXT_ERR_MAX] = "";
    uint32_t id = (uint8_t)around[i % strlen(around)];
    if (text_matcher_accept(m, id, err) != TEXT_OK)
        fail_msg("%u: %s", i, err);
}

/* Makes a mask and accepts the next byte of a text, repeatedly. Returns the number of bytes
 * before a mask failed. */
static uint32_t follow(struct text_matcher *m, const char *around, uint32_t n,
                       char err[TEXT_ERR_MAX])
{
    uint32_t words[WORDS];
    for (uint32_t i = 0; i < n; i++) {
        if (!mask(m, words, err))
            return i;
        take(m, around, i);
    }
    return n;
}

static void sizes_are_said(void **state)
{
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"format\":\"date\"},"
                                 "\"b\":{\"enum\":[\"x\",\"y\",\"z\"]}}}";
    struct text_compile_cost first = {0}, next;
    for (int i = 0; i < 3; i++) {
        struct text_grammar *g = compile(TEXT_GRAMMAR_JSON_SCHEMA, schema);
        text_grammar_cost(g, i == 0 ? &first : &next);
        struct text_matcher *m = matcher(g);
        assert_in_range(text_matcher_bytes(m) * 1000, first.matcher_bytes * 990,
                        first.matcher_bytes * 1010);
        text_matcher_free(m);
        text_grammar_free(g);
        if (i > 0)
            assert_in_range(next.kept_bytes * 1000, first.kept_bytes * 990,
                            first.kept_bytes * 1010);
    }
    assert_in_range(first.matcher_bytes, 10000, first.kept_bytes);
    assert_in_range(first.kept_bytes, 10000, first.peak_bytes);
}

/* Copies leave no memory behind. Each draft token makes and drops a copy; only the lexer's new
 * states stay. */
static void copies_leave_no_trace(void **state)
{
    struct text_grammar *g = compile(TEXT_GRAMMAR_REGEX, "([a-f]{1,9}x|[e-k]{2,7}y)+");
    struct text_matcher *m = matcher(g), *straight = matcher(g);
    char err[TEXT_ERR_MAX] = "";
    uint32_t words[WORDS];
    assert_true(mask(m, words, err));
    uint64_t before = text_matcher_bytes(m);
    for (int i = 0; i < 1000; i++)
        text_matcher_free(text_matcher_copy(m));
    assert_int_equal(text_matcher_bytes(m), before);
    for (int i = 0; i < 100; i++) {
        struct text_matcher *copy = text_matcher_copy(m);
        assert_int_equal(text_matcher_bytes(copy), before);
        take(copy, "efx", 0);
        take(copy, "efx", 1);
        assert_true(mask(copy, words, err));
        assert_true(text_matcher_bytes(copy) >= before);
        text_matcher_free(copy);
        before = text_matcher_bytes(m);
    }
    take(m, "efx", 0);
    take(m, "efx", 1);
    assert_true(mask(m, words, err));
    assert_int_equal(follow(straight, "ef", 2, err), 2);
    assert_true(mask(straight, words, err));
    assert_in_range(text_matcher_bytes(m) * 100, text_matcher_bytes(straight) * 90,
                    text_matcher_bytes(straight) * 110);
    text_matcher_free(straight);
    text_matcher_free(m);
    text_grammar_free(g);
}

/* Compiles a grammar where each byte fits many rules, all of which the parser remembers. */
static struct text_grammar *compile_wide(void)
{
    char *source = malloc(ALTERNATIVES * 64), *at = source;
    at += sprintf(at, "start: x*\nx: a0");
    for (int i = 1; i < ALTERNATIVES; i++)
        at += sprintf(at, " | a%d", i);
    for (int i = 0; i < ALTERNATIVES; i++)
        at += sprintf(at, "\na%d: \"a\" b%d\nb%d: /[b-z]/ | \"%d\"", i, i, i, i % 10);
    sprintf(at, "\n");
    struct text_grammar *g = compile(TEXT_GRAMMAR_LARK, source);
    free(source);
    return g;
}

static void one_that_needs_too_much_ends(void **state)
{
    enum { MOST = 20000 };
    struct text_grammar *g = compile_wide();
    struct text_matcher *m = matcher(g), *replay = matcher(g);
    char err[TEXT_ERR_MAX] = "";
    uint32_t words[WORDS];
    uint32_t n = follow(m, "ab", MOST, err);
    assert_in_range(n, 100, MOST - 1);
    assert_non_null(strstr(err, "keep more of this text in memory than is allowed"));
    assert_int_equal(text_matcher_mask(m, words, WORDS, err), TEXT_LIMIT);
    for (uint32_t id = 0; id < EOS; id++)
        assert_false(words[id / 32] >> (id % 32) & 1);
    for (uint32_t i = 0; i + 1 < n; i++)
        take(replay, "ab", i);
    assert_true(mask(replay, words, err));
    assert_true(text_matcher_bytes(replay) < 2 * text_matcher_bytes(m));
    text_matcher_free(replay);
    text_matcher_free(m);
    text_grammar_free(g);
}

static void honest_texts_never_end_so(void **state)
{
    enum { N = 8000 };
    static const char record[] = "{\"name\":\"somebody\",\"n\":17,\"ok\":true},";
    struct text_grammar *g =
        compile(TEXT_GRAMMAR_JSON_SCHEMA,
                "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"name\":{"
                "\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"ok\":{\"type\":"
                "\"boolean\"}}}}");
    struct text_matcher *m = matcher(g);
    char err[TEXT_ERR_MAX] = "";
    uint32_t words[WORDS];
    assert_true(mask(m, words, err));
    take(m, "[", 0);
    assert_int_equal(follow(m, record, N, err), N);
    assert_true(text_matcher_bytes(m) < N * 1024);
    text_matcher_free(m);
    text_grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_said),
        cmocka_unit_test(copies_leave_no_trace),
        cmocka_unit_test(one_that_needs_too_much_ends),
        cmocka_unit_test(honest_texts_never_end_so),
    };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
