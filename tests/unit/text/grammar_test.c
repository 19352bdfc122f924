/* Tests grammars of each kind: JSON schema, regex, Lark and GBNF, structural tag, behind
 * reasoning. Most tests use builtin:bytes, where a token is a byte, and follow a text: how many
 * bytes are allowed, and whether the text may end there. Other tests have tokens of several
 * characters, refusals with their texts, and grammars that would explode. Invariants: the mask
 * allows exactly the tokens that the matcher accepts, and every call returns. The vocabulary is
 * shared and read-only. */
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
    text_grammar_free(g); /* the grammar may be freed before the matcher */
    return m;
}

static bool has(const uint32_t *words, uint32_t id)
{
    return words[id / 32] >> (id % 32) & 1;
}

struct grammar_case {
    enum text_grammar_kind kind;
    const char *source, *text;
    int n_fit; /* number of bytes of the text that are allowed */
    bool ends; /* all bytes are allowed, and the text may end there */
};

#define SCHEMA                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":3},"             \
    "\"b\":{\"enum\":[\"x\",\"y\"]}},\"required\":[\"a\"],\"additionalProperties\":false}"
#define REASONED(begun, kind, source)                                                              \
    "{\"open\":[\"<t>\"],\"close\":[\"</t>\",\"call:\"],\"begun\":" begun ",\"kind\":" kind        \
    ",\"source\":\"" source "\"}"
#define ANSWERS "start: \"ja\" | \"nein\" | \"\\\"n\\\"\""
#define TAGS                                                                                       \
    "{\"structures\":[{\"begin\":\"<f>\",\"schema\":{\"type\":\"boolean\"},\"end\":\"</f>\"}],"    \
    "\"triggers\":[\"<f\"]}"

/* SQL is an example from vLLM's documentation. */
#define SQL                                                                                        \
    "root ::= select_statement\n"                                                                  \
    "select_statement ::= \"SELECT \" column \" from \" table \" where \" condition\n"             \
    "column ::= \"col_1 \" | \"col_2 \"\ntable ::= \"table_1 \" | \"table_2 \"\n"                  \
    "condition ::= column \"= \" number\nnumber ::= \"1 \" | \"2 \"\n"
/* SUMS is a grammar in llama.cpp's style. It has comments, a rule on two lines, names with "-",
 * and recursion. */
#define SUMS                                                                                       \
    "# sums\nroot ::= (expr \"=\" ws term \"\\n\")+\nexpr ::= term ([-+*/] term)*\n"               \
    "term ::= ident | num-1 |\n  \"(\" ws expr \")\" ws  # itself\nident ::= [a-z] [a-z0-9_]* "    \
    "ws\n"                                                                                         \
    "num-1 ::= [0-9]{1,3} ws\nws ::= [ \\t]*"

static const struct grammar_case cases[] = {
    {TEXT_GRAMMAR_JSON_SCHEMA, SCHEMA, "{\"a\": 12, \"b\": \"y\"}", 19, true},
    {TEXT_GRAMMAR_JSON_SCHEMA, SCHEMA, "{\"a\":3}", 7, true},
    {TEXT_GRAMMAR_JSON_SCHEMA, SCHEMA, "{\"a\":2}", 6, false},
    {TEXT_GRAMMAR_JSON_SCHEMA, SCHEMA, "{\"a\":", 5, false},
    {TEXT_GRAMMAR_JSON_SCHEMA, SCHEMA, "{\"b\":\"x\"}", 2, false},
    {TEXT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\"}", "{\"k\":[1,{\"z\":null}]}", 20, true},
    /* These patterns with quotes and backslashes are supported. */
    {TEXT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^a\\\\\\\\b$\"}", "\"a\\\\b\"",
     6, true},
    {TEXT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^\\\"?[a-z]$\"}", "\"\\\"a\"", 5,
     true},
    {TEXT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[^\\\"\\\\s]{2}\\\\.$\"}",
     "\"ab.\"", 5, true},
    {TEXT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[x\\\"]{2}$\"}", "\"x\\\"\"", 5,
     true},
    {TEXT_GRAMMAR_REGEX, "[a-c]{2,3}-?", "abc", 3, true},
    {TEXT_GRAMMAR_REGEX, "[a-c]{2,3}-?", "a", 1, false},
    {TEXT_GRAMMAR_REGEX, "[a-c]{2,3}-?", "abcc", 3, false},
    {TEXT_GRAMMAR_LARK, ANSWERS, "nein", 4, true},
    {TEXT_GRAMMAR_LARK, ANSWERS, "\"n\"", 3, true},
    {TEXT_GRAMMAR_LARK, ANSWERS, "nu", 1, false},
    {TEXT_GRAMMAR_LARK, "root ::= \"yes\" | \"no\"", "no", 2, true},
    {TEXT_GRAMMAR_LARK, "root ::= \"yes\" | \"no\"", "yo", 1, false},
    {TEXT_GRAMMAR_LARK, SQL, "SELECT col_2  from table_1  where col_1 = 2 ", 44, true},
    {TEXT_GRAMMAR_LARK, SQL, "SELECT col_3", 11, false},
    {TEXT_GRAMMAR_LARK, SUMS, "(a +(b1 *12)) =c\nx=1\n", 21, true},
    {TEXT_GRAMMAR_LARK, SUMS, "(a +b=", 5, false},
    {TEXT_GRAMMAR_LARK, SUMS, "1234", 3, false},
    {TEXT_GRAMMAR_LARK, "// Lark's\nroot::=\"\"|\"(\" root \")\"", "(())", 4, true},
    {TEXT_GRAMMAR_LARK, "root ::= [^\"\\\\\\x41-C/]+ \"\\\"\" .?", "a]/", 2, false},
    {TEXT_GRAMMAR_LARK, "root ::= [^\"\\\\\\x41-C/]+ \"\\\"\" .?", "a\nD\"\n", 5, true},
    {TEXT_GRAMMAR_LARK, "root ::= [^\"\\\\\\x41-C/]+ \"\\\"\" .?", "aB", 1, false},
    {TEXT_GRAMMAR_LARK, "root ::= key*\nkey ::= [a-z]+ \"end\" \";\"", "fooend;xend;", 12, true},
    {TEXT_GRAMMAR_STRUCTURAL_TAG, TAGS, "so <f>true</f> and", 18, true},
    {TEXT_GRAMMAR_STRUCTURAL_TAG, TAGS, "so <f>1", 6, false},
    {TEXT_GRAMMAR_STRUCTURAL_TAG, TAGS, "so <f>tr", 8, false},
    /* With a grammar behind reasoning, the reasoning may be left out, or it may have begun. */
    {TEXT_GRAMMAR_AFTER_REASONING, REASONED("false", "2", "[0-9]+"), "12", 2, true},
    {TEXT_GRAMMAR_AFTER_REASONING, REASONED("false", "2", "[0-9]+"), "a", 0, false},
    {TEXT_GRAMMAR_AFTER_REASONING, REASONED("false", "2", "[0-9]+"), "<t>a</b\"</t>1", 13, true},
    {TEXT_GRAMMAR_AFTER_REASONING, REASONED("false", "2", "[0-9]+"), "<t>a</t>", 8, false},
    {TEXT_GRAMMAR_AFTER_REASONING, REASONED("false", "2", "[0-9]+"), " <t>", 0, false},
    {TEXT_GRAMMAR_AFTER_REASONING, REASONED("true", "2", "[0-9]+"), "12", 2, false},
    {TEXT_GRAMMAR_AFTER_REASONING, REASONED("true", "2", "[0-9]+"), "1</t>2", 6, true},
    {TEXT_GRAMMAR_AFTER_REASONING, REASONED("true", "2", "[0-9]+"), "\u00e9 call:2", 9, true},
    {TEXT_GRAMMAR_AFTER_REASONING, REASONED("true", "2", "[0-9]+"), "</t>x", 4, false},
    {TEXT_GRAMMAR_AFTER_REASONING, REASONED("true", "1", "{\\\"type\\\":\\\"null\\\"}"), "</t>null",
     8, true},
    {TEXT_GRAMMAR_AFTER_REASONING, REASONED("true", "3", "start: \\\"a\\\" | start \\\"b\\\""),
     "</t></t>ab", 4, false},
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
            if (byte != 0) /* the mask and the matcher agree about each byte */
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
    char *inner = repeated("{\"open\":[],\"close\":[\"x\"],\"begun\":true,\"kind\":2,\"source\":\"",
                           "(", 65, "\"}");
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
        {TEXT_GRAMMAR_LARK, "root ::= nothing", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "start ::= \"a\"", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "root ::= \"a\" root ::= \"b\"", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "root ::= \"a", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "root ::= \"\\q\"", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "root ::= \"\\ud800\"", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "root ::= \"\\u00", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "root ::= [b-a]", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "root ::= []", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "root ::= (\"a\"", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "root ::= \"a\")", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "root ::= \"a\"{2,1}", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "root ::= \"a\"{99999}", TEXT_INVALID},
        {TEXT_GRAMMAR_LARK, "root ::= %json {}", TEXT_INVALID},
        {TEXT_GRAMMAR_STRUCTURAL_TAG, "{\"structures\":[],\"triggers\":[]}", TEXT_INVALID},
        {TEXT_GRAMMAR_STRUCTURAL_TAG,
         "{\"structures\":[{\"begin\":\"<f>\",\"schema\":{},\"end\":\"\"}],\"triggers\":[\"x\"]}",
         TEXT_INVALID},
        {(enum text_grammar_kind)9, "a", TEXT_INVALID},
        /* llguidance would ignore the text behind these patterns (text/src/schema/check.rs). */
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"pattern\":\"^\\\"[a-z]+$\"}", TEXT_INVALID},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"items\":{\"pattern\":\"\\\\\\\\[0-9]\"}}", TEXT_INVALID},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"patternProperties\":{\"^a\\\\n.\":{}}}", TEXT_INVALID},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"pattern\":\"^[\\\\x22](a|b)$\"}", TEXT_INVALID},
        /* Each item would need a rule or a state, and the limits of the llguidance crate apply
         * too late. */
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"minItems\":1000000000}", TEXT_LIMIT},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"items\":[{\"type\":\"array\",\"maxItems\":2e5}]}",
         TEXT_LIMIT},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":4000000000}", TEXT_LIMIT},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"multipleOf\":999983,\"maximum\":1e18}", TEXT_LIMIT},
        {TEXT_GRAMMAR_LARK, "start: %json {\"type\":\"array\",\"minItems\":1000000000}",
         TEXT_LIMIT},
        {TEXT_GRAMMAR_AFTER_REASONING, REASONED("true", "1", "{\\\"maxItems\\\":30000}"),
         TEXT_LIMIT},
        {TEXT_GRAMMAR_AFTER_REASONING, "{}", TEXT_INVALID},
        {TEXT_GRAMMAR_AFTER_REASONING, REASONED("true", "5", "{}"), TEXT_INVALID},
        {TEXT_GRAMMAR_AFTER_REASONING, REASONED("true", "2", "(a"), TEXT_INVALID},
        {TEXT_GRAMMAR_AFTER_REASONING,
         "{\"open\":[],\"close\":[\"\"],\"begun\":true,\"kind\":2,\"source\":\"a\"}", TEXT_INVALID},
        {TEXT_GRAMMAR_AFTER_REASONING, inner, TEXT_LIMIT},
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
    free(inner);
}

/* A lexeme of any bytes includes the marker of special tokens, which is not text. */
static void any_bytes_are_no_special_token(void **state)
{
    struct text_matcher *m = matcher(TEXT_GRAMMAR_LARK, "start: ANY \".\"\nANY: ~\"(\"", NULL, 0);
    uint32_t words[WORDS];
    char err[TEXT_ERR_MAX];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(text_matcher_mask(m, words, WORDS, err), TEXT_OK);
        assert_true(has(words, 'a'));
        for (uint32_t id = 256; id < WORDS * 32; id++)
            assert_true(!has(words, id) || id == EOS);
        assert_int_equal(text_matcher_accept(m, 'a', err), TEXT_OK);
    }
    text_matcher_free(m);
}

/* The compile of an explosive grammar ends, whether the grammar is accepted or refused. The
 * masks of an accepted grammar also end. */
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
    char *product = repeated("{\"allOf\":[",
                             "{\"anyOf\":[{\"properties\":{\"a\":{\"minimum\":1}}},{\"required\":"
                             "[\"b\"]},{\"maxProperties\":9}]},",
                             18, "{}]}");
    char *enumeration = repeated("{\"enum\":[", "\"aaaaaaaaaaaaaaaa\",", 12000, "1]}");
    char *choices = repeated("{\"oneOf\":[",
                             "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}}},",
                             2000, "true]}");
    const struct {
        enum text_grammar_kind kind;
        const char *source;
    } bombs[] = {
        {TEXT_GRAMMAR_JSON_SCHEMA, product},
        {TEXT_GRAMMAR_JSON_SCHEMA, enumeration},
        {TEXT_GRAMMAR_JSON_SCHEMA, choices},
        {TEXT_GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"array\",\"items\":{},\"minItems\":9000,\"maxItems\":9999}"},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":1000000}"},
        {TEXT_GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"integer\",\"multipleOf\":1999,\"minimum\":0,\"maximum\":1000000000000}"},
        {TEXT_GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"string\",\"pattern\":\"^((a|b){1,900}c?){1,900}$\",\"maxLength\":900000}"},
        {TEXT_GRAMMAR_JSON_SCHEMA,
         "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/b\"},{\"$ref\":"
         "\"#/$defs/a\"}]},\"b\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/"
         "b\"}]}}}"},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"minProperties\":10000}"},
        {TEXT_GRAMMAR_REGEX, "(.*a){40}(.*b){40}[^c]{0,5000}d"},
        {TEXT_GRAMMAR_LARK, "start: /((a?){300}a{300})+/ start?"},
        {TEXT_GRAMMAR_JSON_SCHEMA, chain},
        {TEXT_GRAMMAR_JSON_SCHEMA, options},
        {TEXT_GRAMMAR_JSON_SCHEMA, closed},
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#\"}"},
        {TEXT_GRAMMAR_REGEX, "((a{1000}){1000}){1000}"},
        {TEXT_GRAMMAR_REGEX, "(a|aa)*b(.*x){200}"},
        {TEXT_GRAMMAR_LARK, "start: start start | \"a\""},
        {TEXT_GRAMMAR_LARK, "root ::= (((\"a\"){4096}){4096}){4096}"},
        {TEXT_GRAMMAR_LARK, "root ::= (((\"a\" root?){4096}){4096}){4096}"},
        {TEXT_GRAMMAR_LARK, "root ::= root root | \"\" | root*"},
    };
    struct text_grammar *g;
    struct text_matcher *m;
    uint32_t words[WORDS];
    char err[TEXT_ERR_MAX] = "";
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        int rc = compile(bombs[i].kind, bombs[i].source, &g, err);
        print_message("bomb %zu: %d %s\n", i, rc, rc == TEXT_OK ? "" : err);
        fflush(stdout);
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
    free(product);
    free(enumeration);
    free(choices);
}

/* ---- tokens of several characters ---- */

/* Texts of the tokens behind the 270 tokens of the fixture's tokenizer. */
static const char *const pieces[] = {
    "a",          "ab",  "abc",    "abcdef",  "b1",     "12",           "1234",
    "A",          "Ab",  "\u00e9", "\u00e9t", "\u65e5", "\u65e5\u672c", "a\u65e5",
    "\U0001f600", "x y", "hello,", ", ",      "<",      "</",           "</t",
    "t>",         ">",   "t>1",    "</t>",    "a<",     "a</t>",        "{",
    "}",          ":",   ",",      "a, b",    "(a",     "[1",           "a b c d e f g h i",
    "-",          "@",   "a@b",    ".",       "a.b"};
enum { N_PIECES = sizeof pieces / sizeof *pieces, N_WORDY = 270 + N_PIECES };

static char *wordy_json(void)
{
    char *made = fixture_spm_json(), *json = strdup(made), *out = NULL;
    const char *merges = strstr(json, "},\"merges\"");
    size_t len = 0;
    FILE *f = open_memstream(&out, &len);
    fwrite(json, 1, (size_t)(merges - json), f);
    free(made);
    for (size_t i = 0; i < N_PIECES; i++)
        fprintf(f, ",\"%s\":%zu", pieces[i], 270 + i);
    fputs(merges, f);
    fclose(f);
    free(json);
    return out;
}

/* Returns the longest piece that the text begins with, or else its first byte. <s> is a special
 * token and not text. */
static uint32_t next_id(const char *text, size_t *len)
{
    uint32_t id = 3 + (unsigned char)*text;
    *len = 1;
    if (strncmp(text, "<s>", 3) == 0) {
        *len = 3;
        return 1;
    }
    for (uint32_t i = 0; i < N_PIECES; i++) {
        size_t n = strlen(pieces[i]);
        if (n < *len || strncmp(text, pieces[i], n) != 0)
            continue;
        id = 270 + i;
        *len = n;
    }
    return id;
}

struct wordy_case {
    enum text_grammar_kind kind;
    const char *source, *text;
};

/* Checks that the mask allows each token that the matcher accepts, whatever characters it has. */
static void check_masks(const struct text_vocabulary *v, const struct wordy_case *c)
{
    enum { N_MASK = (N_WORDY + 31) / 32 };
    struct text_grammar *g;
    struct text_matcher *m;
    char err[TEXT_ERR_MAX] = "";
    uint32_t words[N_MASK], n_seen = 0;
    if (text_grammar_compile(v, c->kind, c->source, strlen(c->source), &g, err) != TEXT_OK)
        fail_msg("%s: %s", c->source, err);
    assert_int_equal(text_matcher_new(g, NULL, 0, &m, err), TEXT_OK);
    for (const char *at = c->text;;) {
        size_t len;
        assert_int_equal(text_matcher_mask(m, words, N_MASK, err), TEXT_OK);
        for (uint32_t id = 3; id < N_WORDY; id++) {
            struct text_matcher *ahead = text_matcher_copy(m);
            bool accepts = text_matcher_accept(ahead, id, err) == TEXT_OK;
            if (accepts != has(words, id))
                fail_msg("%s: in front of %s token %u: mask %d", c->source, at, id, has(words, id));
            n_seen += accepts;
            text_matcher_free(ahead);
        }
        if (!*at)
            break;
        if (text_matcher_accept(m, next_id(at, &len), err) != TEXT_OK)
            fail_msg("%s: in front of %s: %s", c->source, at, err);
        at += len;
    }
    assert_true(n_seen > 0);
    text_matcher_free(m);
    text_grammar_free(g);
}

#define LIMITED "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"string\",\"maxLength\":7}}}"
#define NAMED   "{\"type\":\"object\",\"properties\":{\"abc\":{\"type\":\"integer\"},\"x y\":{}}}"
#define FORMATS                                                                                    \
    "{\"type\":\"object\",\"required\":[\"e\"],\"properties\":{\"e\":{\"type\":\"string\","        \
    "\"format\":"                                                                                  \
    "\"email\"},\"p\":{\"type\":\"string\",\"pattern\":\"^[A-Za-z]{2,5} [a-z ]+$\"}}}"
#define SPECIAL                                                                                    \
    "{\"open\":[],\"close\":[\"<s>\"],\"begun\":true,\"kind\":2,\"source\":\"[a-z]{2,20}\"}"

static void masks_are_what_is_accepted(void **state)
{
    static const struct wordy_case wordy[] = {
        {TEXT_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\"}",
         "{\"abc\": \"a\u65e5 hello\\n\", \"b\": [12]}"},
        {TEXT_GRAMMAR_JSON_SCHEMA, LIMITED, "{\"n\": \"abcde\u65e5\"}"},
        {TEXT_GRAMMAR_JSON_SCHEMA, NAMED, "{\"abc\": 12, \"abb1\": 1, \"-\": 2}"},
        {TEXT_GRAMMAR_JSON_SCHEMA, FORMATS, "{\"e\": \"abc.b@ab.a\", \"p\": \"Abc a b\"}"},
        {TEXT_GRAMMAR_REGEX, "[a-z ]{3,9}|\u65e5+|[^<]{4}<", "abcdef"},
        {TEXT_GRAMMAR_REGEX, "[^\"]*", "a </t>\n{"},
        {TEXT_GRAMMAR_REGEX, "(a1|[b-zA-Z0-9])[A-Za-z0-9]{0,3};",
         "Ab12;"}, /* the characters "a" and "1" continue in another part of the pattern */
        {TEXT_GRAMMAR_REGEX, "(\u00e9|a){2,30}b?", "\u00e9aa"},
        {TEXT_GRAMMAR_LARK, "start: A B\nA: /[a-z]{1,4}/\nB: /[0-9a-z ]+/", "ab12 hello"},
        {TEXT_GRAMMAR_LARK, "start: W (\",\" W)*\nW: /[A-Za-z0-9]+/", "abc,12,Ab"},
        {TEXT_GRAMMAR_STRUCTURAL_TAG, TAGS, "abc hello <f>true</f> \u65e5"},
        {TEXT_GRAMMAR_AFTER_REASONING, REASONED("true", "2", "[0-9]+"), "abc < a</b </t>12"},
        {TEXT_GRAMMAR_AFTER_REASONING, REASONED("false", "2", "[a-c]+"), "<t>hello</t>abc"},
        {TEXT_GRAMMAR_AFTER_REASONING, SPECIAL, "hello <s>abc"},
    };
    struct text_tokenizer *t = NULL;
    struct text_vocabulary *v = NULL;
    char err[TEXT_ERR_MAX] = "", *json = wordy_json();
    assert_int_equal(fixture_setup(state), 0);
    fixture_write("tokenizer.json", json, strlen(json));
    if (text_tokenizer_open(fixture_dir, NULL, &t, err) != TEXT_OK ||
        text_vocabulary_new(t, &v, err) != TEXT_OK)
        fail_msg("%s", err);
    assert_int_equal(text_vocab_size(t), N_WORDY);
    for (size_t i = 0; i < sizeof wordy / sizeof *wordy; i++)
        check_masks(v, &wordy[i]);
    text_vocabulary_free(v);
    text_tokenizer_free(t);
    free(json);
    fixture_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_fit_as_their_grammar_says),
        cmocka_unit_test(behind_the_end_only_the_end_comes),
        cmocka_unit_test(what_is_no_grammar_is_refused_with_why),
        cmocka_unit_test(any_bytes_are_no_special_token),
        cmocka_unit_test(bombs_come_back),
        cmocka_unit_test(masks_are_what_is_accepted),
    };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
