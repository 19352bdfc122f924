/* Tests the limits on the cost of grammars and of their masks, over builtin:bytes. The tests
 * compile grammars that would explode, and follow texts through matchers while they count the
 * cost. Invariants: an explosive grammar is refused before it costs much, and the error names
 * the reason. Counts are the same in each run, and only the sequence that costs too much ends. A
 * replay of its tokens does not fail earlier. A compile that may end the process runs in a fork. */
#include "text_fixture.h"

#include <sys/wait.h>

enum { WORDS = 9, EOS = 257, ROOM = 1 << 20, EXIT_CODE = 77 };

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

struct text {
    char *at, *end, bytes[ROOM];
};

static void add(struct text *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    t->at += vsnprintf(t->at, (size_t)(t->end - t->at), format, list);
    va_end(list);
    assert_true(t->at < t->end);
}

static struct text *text_new(void)
{
    struct text *t = malloc(sizeof *t);
    t->at = t->bytes;
    t->end = t->bytes + sizeof t->bytes;
    return t;
}

#define PATTERN "(.*[a-z]%d.{5})"

static void patterns(struct text *t)
{
    add(t, "{\"allOf\":[true");
    for (int i = 0; i < 8; i++)
        add(t, ",{\"type\":\"string\",\"pattern\":\"" PATTERN "\"}", i);
    add(t, "]}");
}

/* Adds the patterns as the value of a member. The next function adds the patterns as a member's
 * name. */
static void patterns_of_a_member(struct text *t)
{
    add(t, "{\"allOf\":[true");
    for (int i = 0; i < 8; i++)
        add(t,
            ",{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\",\"pattern\":"
            "\"" PATTERN "\"}}}",
            i);
    add(t, "]}");
}

static void patterns_of_names(struct text *t)
{
    add(t, "{\"type\":\"object\",\"propertyNames\":{\"allOf\":[true");
    for (int i = 0; i < 8; i++)
        add(t, ",{\"pattern\":\"" PATTERN "\"}", i);
    add(t, "]}}");
}

/* Adds 30 levels with eight references each. The last level is `leaf`, so the schema has 8^30
 * copies of it. */
static void fans_out(struct text *t, const char *leaf)
{
    add(t, "{\"$ref\":\"#/$defs/a0\",\"$defs\":{\"a30\":%s", leaf);
    for (int i = 0; i < 30; i++) {
        add(t, ",\"a%d\":{\"allOf\":[true", i);
        for (int j = 0; j < 8; j++)
            add(t, ",{\"$ref\":\"#/$defs/a%d\"}", i + 1);
        add(t, "]}");
    }
    add(t, "}}");
}

static void fans_out_text(struct text *t)
{
    fans_out(t, "{\"type\":\"string\",\"pattern\":\"^a$\"}");
}

static void fans_out_object(struct text *t)
{
    fans_out(t, "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}}}");
}

static void chooses_out(struct text *t)
{
    add(t, "{\"allOf\":[{\"$ref\":\"#/$defs/a0\"},{\"type\":\"object\"}],"
           "\"$defs\":{\"a30\":{\"type\":\"object\"}");
    for (int i = 0; i < 30; i++)
        add(t, ",\"a%d\":{\"anyOf\":[{\"$ref\":\"#/$defs/a%d\"},{\"$ref\":\"#/$defs/a%d\"}]}", i,
            i + 1, i + 1);
    add(t, "}}");
}

static void lark_patterns(struct text *t)
{
    add(t, "start: T\nT: /a.*/");
    for (int i = 0; i < 16; i++)
        add(t, " & /" PATTERN "/", i);
    add(t, "\n");
}

/* Adds copies of a large schema for each of many options. Only the allocator can detect the size
 * of the copies. */
static void copies(struct text *t)
{
    add(t, "{\"allOf\":[{\"anyOf\":[{\"type\":\"object\"}");
    for (int i = 0; i < 500; i++)
        add(t, ",{\"type\":\"object\",\"minProperties\":0}");
    add(t, "]},{\"type\":\"object\",\"properties\":{\"z\":{}");
    for (int i = 0; i < 100; i++) {
        add(t, ",\"p%d\":{\"type\":\"object\",\"properties\":{\"z\":{}", i);
        for (int j = 0; j < 10; j++)
            add(t, ",\"q%d\":{\"enum\":[0,1,2,3,4,5,6,7]}", j);
        add(t, "}}");
    }
    add(t, "}}]}");
}

static void bombs_are_refused_by_name(void **state)
{
    static const struct {
        enum text_grammar_kind kind;
        void (*write)(struct text *t);
        const char *words;
    } cases[] = {
        {TEXT_GRAMMAR_JSON_SCHEMA, patterns, "the intersection of 8 patterns"},
        {TEXT_GRAMMAR_JSON_SCHEMA, patterns_of_a_member, "the intersection of 8 patterns"},
        {TEXT_GRAMMAR_JSON_SCHEMA, patterns_of_names, "the intersection of 8 patterns"},
        {TEXT_GRAMMAR_JSON_SCHEMA, fans_out_text, "patterns for one string"},
        {TEXT_GRAMMAR_JSON_SCHEMA, fans_out_object, "schemas for one value"},
        {TEXT_GRAMMAR_JSON_SCHEMA, chooses_out, "too many members"},
        {TEXT_GRAMMAR_LARK, lark_patterns, "an intersection of patterns"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text *t = text_new();
        struct text_grammar *g = NULL;
        char err[TEXT_ERR_MAX] = "";
        cases[i].write(t);
        int rc = text_grammar_compile(vocabulary, cases[i].kind, t->bytes,
                                      (size_t)(t->at - t->bytes), &g, err);
        if (rc != TEXT_LIMIT || !strstr(err, cases[i].words))
            fail_msg("%zu: %d %s", i, rc, err);
        free(t);
    }
}

static int compile_copies(char err[TEXT_ERR_MAX])
{
    struct text *t = text_new();
    struct text_grammar *g = NULL;
    copies(t);
    int rc = text_grammar_compile(vocabulary, TEXT_GRAMMAR_JSON_SCHEMA, t->bytes,
                                  (size_t)(t->at - t->bytes), &g, err);
    free(t);
    return rc;
}

/* A compile that no check stops may end the process if that is allowed. Otherwise, the result of
 * the compile is dropped. */
static void what_no_check_sees_ends_the_compile(void **state)
{
    char err[TEXT_ERR_MAX] = "";
    pid_t pid = fork();
    if (pid == 0) {
        text_compile_may_end_process(EXIT_CODE);
        compile_copies(err);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_CODE);
    assert_int_equal(compile_copies(err), TEXT_LIMIT);
    assert_non_null(strstr(err, "costs too much to compile"));
}

#define EXPRESSION "start: e\ne: e \"+\" e | \"(\" e \")\" | /[0-9]+/\n"

static struct text_grammar *compile(enum text_grammar_kind kind, const char *source)
{
    struct text_grammar *g = NULL;
    char err[TEXT_ERR_MAX] = "";
    if (text_grammar_compile(vocabulary, kind, source, strlen(source), &g, err) != TEXT_OK)
        fail_msg("%s: %s", source, err);
    return g;
}

static void counts_are_the_same_each_time(void **state)
{
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"format\":\"uri\"},"
                                 "\"b\":{\"type\":\"number\",\"multipleOf\":0.37}}}";
    struct text_compile_cost first = {0}, next = {0};
    for (int i = 0; i < 5; i++) {
        struct text_grammar *g = compile(TEXT_GRAMMAR_JSON_SCHEMA, schema);
        text_grammar_cost(g, i == 0 ? &first : &next);
        text_grammar_free(g);
        if (i == 0)
            continue;
        assert_in_range(next.bytes * 1000, first.bytes * 990, first.bytes * 1010);
        assert_in_range(next.peak_bytes * 1000, first.peak_bytes * 990, first.peak_bytes * 1010);
        assert_int_equal(next.fuel, first.fuel);
    }
    assert_true(first.bytes > 100000 && first.bytes < 100000000);
    assert_true(first.peak_bytes > 10000 && first.peak_bytes < first.bytes);
}

static struct text_matcher *matcher(const struct text_grammar *g)
{
    static const uint32_t eos = EOS;
    struct text_matcher *m = NULL;
    char err[TEXT_ERR_MAX] = "";
    assert_int_equal(text_matcher_new(g, &eos, 1, &m, err), TEXT_OK);
    return m;
}

/* Makes a mask and accepts the next byte of a text, repeatedly. Returns the number of masks. */
static int follow(struct text_matcher *m, const char *around, int n, char err[TEXT_ERR_MAX])
{
    uint32_t words[WORDS];
    for (int i = 0; i < n; i++) {
        if (text_matcher_mask(m, words, WORDS, err) != TEXT_OK)
            return i;
        uint32_t id = (uint8_t)around[(size_t)i % strlen(around)];
        assert_true(words[id / 32] >> (id % 32) & 1);
        assert_int_equal(text_matcher_accept(m, id, err), TEXT_OK);
    }
    return n;
}

/* Each byte makes the rows longer by some hundred items, so a few bytes are enough. */
static void a_sequence_whose_masks_cost_too_much_ends(void **state)
{
    struct text *t = text_new();
    add(t, "start: s\ns: /[a-z ]/ | \n | s");
    for (int i = 0; i < 100; i++)
        add(t, " s");
    add(t, "\n");
    struct text_grammar *g = compile(TEXT_GRAMMAR_LARK, t->bytes);
    free(t);
    struct text_matcher *m = matcher(g);
    char err[TEXT_ERR_MAX] = "";
    uint32_t words[WORDS];
    int n = follow(m, "abc ", 200, err);
    assert_in_range(n, 2, 199);
    assert_non_null(strstr(err, "costs more than it may"));
    assert_true(text_matcher_cost(m) < 30000000); /* 3 s */
    assert_int_equal(text_matcher_mask(m, words, WORDS, err), TEXT_LIMIT);
    for (uint32_t id = 0; id < EOS; id++)
        assert_false(words[id / 32] >> (id % 32) & 1);
    text_matcher_free(m);
    text_grammar_free(g);
}

static void honest_texts_never_end_so(void **state)
{
    static const struct {
        enum text_grammar_kind kind;
        const char *source, *around;
    } cases[] = {
        {TEXT_GRAMMAR_LARK, "start: s\ns: s /[a-z ]/ | /[a-z ]/\n", "abc "},
        {TEXT_GRAMMAR_LARK, EXPRESSION, "1+2+"},
        {TEXT_GRAMMAR_REGEX, "([a-z]+ )*", "honest "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text_grammar *g = compile(cases[i].kind, cases[i].source);
        struct text_matcher *m = matcher(g);
        char err[TEXT_ERR_MAX] = "";
        int n = i == 1 ? 100 : 500;
        if (follow(m, cases[i].around, n, err) != n)
            fail_msg("%zu: %s", i, err);
        text_matcher_free(m);
        text_grammar_free(g);
    }
}

/* A replay passes at least up to the last position of the original. */
static void a_replay_passes_where_the_original_did(void **state)
{
    struct text_grammar *g = compile(TEXT_GRAMMAR_LARK, EXPRESSION);
    struct text_matcher *m = matcher(g);
    char err[TEXT_ERR_MAX] = "";
    uint32_t words[WORDS], again[WORDS];
    int n = follow(m, "1+22+", 200, err);
    assert_int_equal(n, 200);
    struct text_matcher *replay = matcher(g);
    for (int i = 0; i < n; i++)
        assert_int_equal(text_matcher_accept(replay, (uint8_t) "1+22+"[i % 5], err), TEXT_OK);
    assert_int_equal(text_matcher_mask(m, words, WORDS, err), TEXT_OK);
    assert_int_equal(text_matcher_mask(replay, again, WORDS, err), TEXT_OK);
    assert_memory_equal(words, again, sizeof words);
    assert_true(text_matcher_cost(replay) <= text_matcher_cost(m));
    text_matcher_free(replay);
    text_matcher_free(m);
    text_grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bombs_are_refused_by_name),
        cmocka_unit_test(what_no_check_sees_ends_the_compile),
        cmocka_unit_test(counts_are_the_same_each_time),
        cmocka_unit_test(a_sequence_whose_masks_cost_too_much_ends),
        cmocka_unit_test(honest_texts_never_end_so),
        cmocka_unit_test(a_replay_passes_where_the_original_did),
    };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
