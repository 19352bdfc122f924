/* Tests structural tags over builtin:bytes. A row has a format, texts that it accepts and texts
 * that it does not accept. Formats are tested alone and inside other formats, and behind
 * reasoning. An unsupported format is refused, and the error names it. The vocabulary is shared
 * and read-only; each row compiles a grammar and frees it. */
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

static bool takes(const struct text_grammar *g, const char *text)
{
    struct text_matcher *m;
    uint32_t words[WORDS];
    char err[TEXT_ERR_MAX] = "";
    bool ok = true;
    assert_int_equal(text_matcher_new(g, NULL, 0, &m, err), TEXT_OK);
    for (; ok && *text; text++)
        ok = text_matcher_accept(m, (unsigned char)*text, err) == TEXT_OK;
    ok = ok && text_matcher_mask(m, words, WORDS, err) == TEXT_OK;
    ok = ok && (words[EOS / 32] >> (EOS % 32) & 1);
    text_matcher_free(m);
    return ok;
}

#define S(value) "{\"type\":\"const_string\",\"value\":\"" value "\"}"
#define BOOL     "{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"boolean\"}}"
#define ANY      "{\"type\":\"any_text\"}"
#define TAG(begin, content, end)                                                                   \
    "{\"type\":\"tag\",\"begin\":\"" begin "\",\"content\":" content ",\"end\":" end "}"
#define LIST(type, a, b) "{\"type\":\"" type "\",\"elements\":[" a "," b "]}"
#define F                TAG("<f>", BOOL, "\"</f>\"")
#define G                TAG("<g>", BOOL, "\"</g>\"")
#define CALLS(more)                                                                                \
    "{\"type\":\"triggered_tags\",\"triggers\":[\"<f\",\"<g\"],\"tags\":[" F "," G "]" more "}"
#define LISTED(more)                                                                               \
    "{\"type\":\"tags_with_separator\",\"tags\":[" F "," G "],\"separator\":\",\"" more "}"
#define FIRST ",\"at_least_one\":true"
#define STOPS ",\"stop_after_first\":true"

static const struct {
    const char *format, *good[3], *bad[3];
} cases[] = {
    {S("ab"), {"ab"}, {"a", "abc", ""}},
    {BOOL, {"true", "false"}, {"1", ""}},
    {ANY, {"", "x <f>\n", "\u00e9"}, {NULL}},
    {"{\"type\":\"any_text\",\"excludes\":[\"<f\",\"no\"]}", {"", "n<o", "f<"}, {"a<f", "no"}},
    {"{\"type\":\"regex\",\"pattern\":\"[a-c]{2}/\"}", {"ab/"}, {"a/", "ab"}},
    {"{\"type\":\"grammar\",\"grammar\":\"root ::= \\\"a\\\" root | \\\"b\\\"\"}",
     {"b", "aab"},
     {"a", "ba"}},
    {LIST("sequence", S("a"), BOOL), {"atrue"}, {"a", "true", "truea"}},
    {LIST("sequence", S("a"), ANY), {"a", "abc"}, {"b", ""}},
    {LIST("or", S("a"), BOOL), {"a", "true"}, {"atrue", ""}},
    {"{\"type\":\"optional\",\"content\":" S("a") "}", {"", "a"}, {"aa"}},
    {"{\"type\":\"plus\",\"content\":" S("a") "}", {"a", "aaa"}, {"", "ab"}},
    {"{\"type\":\"star\",\"content\":" LIST("or", S("a"), S("b")) "}", {"", "abba"}, {"c"}},
    {"{\"type\":\"repeat\",\"min\":2,\"max\":3,\"content\":" S("a") "}",
     {"aa", "aaa"},
     {"a", "aaaa"}},
    {"{\"type\":\"repeat\",\"min\":1,\"max\":-1,\"content\":" S("a") "}", {"a", "aaaaa"}, {""}},
    {F, {"<f>true</f>"}, {"<f>true", "<f>1</f>", "true"}},
    {TAG("<t>", ANY, "\"</t>\""), {"<t></t>", "<t>a<b\n</t>"}, {"<t>a", "<t></t>a"}},
    {TAG("<t>", ANY, "[\"</t>\",\"<end>\"]"), {"<t>x</t>", "<t>x<end>"}, {"<t>x<end></t>"}},
    {TAG("<t>", BOOL, "[\"</t>\",\"<end>\"]"), {"<t>true</t>", "<t>true<end>"}, {"<t>true"}},
    {TAG("<t>", BOOL, "\"\""), {"<t>true"}, {"<t>"}},
    {TAG("<t>", ANY, "\"\""), {"<t>", "<t>true"}, {"t"}},
    {TAG("<t>", LIST("sequence", S("a"), ANY), "\"</t>\""), {"<t>abc</t>"}, {"<t>b</t>", "<t>a"}},
    {TAG("<t>", LIST("or", ANY, BOOL), "\"</t>\""), {"<t>abc</t>", "<t>true</t>"}, {"<t>"}},
    {LIST("sequence", TAG("<t>", ANY, "\"</t>\""), BOOL),
     {"<t>x</t>true"},
     {"<t>x</t>", "<t>x</t>x", "true"}},
    {CALLS(""),
     {"", "so <f>true</f> and <g>false</g>.", "< g"},
     {"so <f>1</f>", "<f>true", "<h <g"}},
    {CALLS(FIRST), {"<f>true</f>", "<g>true</g> a <f>true</f>"}, {"", "a <f>true</f>", "<f>1"}},
    {CALLS(STOPS), {"a <f>true</f>", "", "no call"}, {"<f>true</f> a", "<f>true</f><f>true</f>"}},
    {CALLS(FIRST STOPS), {"<g>true</g>"}, {"", "a <f>true</f>", "<f>true</f> a"}},
    {CALLS(",\"excludes\":[\"bad\"]"), {"a <f>true</f> b"}, {"a bad", "bad <f>true</f>"}},
    {TAG("[", CALLS(""), "\"]\""), {"[]", "[a <f>true</f> b]"}, {"[a <f>true</f>", "[<f>1]"}},
    {LISTED(""),
     {"", "<f>true</f>", "<g>true</g>,<f>false</f>"},
     {"<f>true</f>,", "a", "<f>true</f><f>true</f>"}},
    {LISTED(FIRST), {"<f>true</f>", "<f>true</f>,<g>true</g>"}, {""}},
    {LISTED(STOPS), {"", "<g>true</g>"}, {"<f>true</f>,<g>true</g>"}},
    {LISTED(FIRST STOPS), {"<g>true</g>"}, {"", "<g>true</g>,"}},
    /* A regex ends at the fixed text behind it. */
    {"{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":\"regex\",\"pattern\":\".*\"},"
     "\"end\":\"</a>\"}",
     {"<a>x</a>", "<a></a>"},
     {"<a>x</a>y", "<a>x"}},
    {"{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":\"regex\",\"pattern\":\".+\"},"
     "\"end\":\"</a>\"}",
     {"<a>x</a>"},
     {"<a></a>"}},
    {"{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":\"regex\",\"pattern\":\"[^x]*\"},"
     "\"end\":\"</a>\"}",
     {"<a>y</a>"},
     {"<a>x</a>"}},
    {"{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":\"regex\",\"pattern\":\"(.|\\n)*\"}"
     ",\"end\":\"</a>\"}",
     {"<a>x\n</a>"},
     {"<a>x"}},
    {"{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":\"regex\",\"pattern\":\"[0-9]+\"},"
     "\"end\":[\"</a>\",\"</b>\"]}",
     {"<a>12</b>"},
     {"<a>x</b>"}},
    {"{\"type\":\"sequence\",\"elements\":[{\"type\":\"regex\",\"pattern\":\"[a-z]*\"},{\"type\":"
     "\"const_string\",\"value\":\"end\"}]}",
     {"xxend", "end"},
     {"xx"}},
    {"{\"type\":\"sequence\",\"elements\":[{\"type\":\"regex\",\"pattern\":\"a*\"},{\"type\":"
     "\"regex\",\"pattern\":\"a\"}]}",
     {"aaa", "a"},
     {"", "b"}},
    {"{\"type\":\"sequence\",\"elements\":[{\"type\":\"regex\",\"pattern\":\"a*\"},{\"type\":"
     "\"regex\",\"pattern\":\"a\"},{\"type\":\"const_string\",\"value\":\"ab\"}]}",
     {"aaab", "aab"},
     {"ab"}},
    {"{\"type\":\"sequence\",\"elements\":[{\"type\":\"const_string\",\"value\":\"x\"},{\"type\":"
     "\"regex\",\"pattern\":\".*\"},{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":"
     "\"json_schema\",\"json_schema\":{\"type\":\"boolean\"}},\"end\":\"</a>\"}]}",
     {"xyz<a>true</a>"},
     {"xyz<a>1</a>"}},
    {"{\"type\":\"sequence\",\"elements\":[{\"type\":\"regex\",\"pattern\":\"[a-z]*\"},{\"type\":"
     "\"const_string\",\"value\":\"{\"},{\"type\":\"json_schema\",\"json_schema\":{\"type\":"
     "\"boolean\"}}]}",
     {"ab{true"},
     {"ab{1"}},
    {"{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":\"star\",\"content\":{\"type\":"
     "\"regex\",\"pattern\":\"[a-z/<>]\"}},\"end\":\"</a>\"}",
     {"<a>xy</a>"},
     {"<a>xy"}},
    {"{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":\"or\",\"elements\":[{\"type\":"
     "\"regex\",\"pattern\":\"[a-z<]*\"},{\"type\":\"const_string\",\"value\":\"5\"}]},\"end\":\"</"
     "a>\"}",
     {"<a>xy</a>", "<a>5</a>"},
     {"<a>6</a>"}},
    {"{\"type\":\"sequence\",\"elements\":[{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{"
     "\"type\":\"regex\",\"pattern\":\".*\"},\"end\":\"</"
     "a>\"},{\"type\":\"tag\",\"begin\":\"<b>\",\"content\":{\"type\":\"regex\",\"pattern\":\"[a-z]"
     "*\"},\"end\":\"</b>\"}]}",
     {"<a>x</a><b>y</b>"},
     {"<a>x</a>"}},
    {"{\"type\":\"repeat\",\"content\":{\"type\":\"const_string\",\"value\":\"x\"},\"min\":0,"
     "\"max\":0}",
     {""},
     {"x"}},
    {"{\"type\":\"sequence\",\"elements\":[{\"type\":\"const_string\",\"value\":\"a\"},{\"type\":"
     "\"repeat\",\"content\":{\"type\":\"const_string\",\"value\":\"x\"},\"min\":0,\"max\":0}]}",
     {"a"},
     {"ax"}},
    {"{\"type\":\"sequence\",\"elements\":[{\"type\":\"regex\",\"pattern\":\"a*\"},{\"type\":"
     "\"repeat\",\"content\":{\"type\":\"const_string\",\"value\":\"x\"},\"min\":0,\"max\":0},{"
     "\"type\":\"const_string\",\"value\":\"b\"}]}",
     {"aab"},
     {"ax"}},
    {"{\"type\":\"repeat\",\"content\":{\"type\":\"json_schema\",\"json_schema\":{\"type\":"
     "\"boolean\"}},\"min\":0,\"max\":0}",
     {""},
     {"true"}},
    {"{\"type\":\"triggered_tags\",\"triggers\":[\"<a\"],\"tags\":[{\"begin\":\"<a>\",\"content\":{"
     "\"type\":\"regex\",\"pattern\":\".*\"},\"end\":\"</a>\"}]}",
     {"hi<a>x</a>yo", "hi"},
     {"<a>x"}},
    {"{\"type\":\"tags_with_separator\",\"separator\":\",\",\"tags\":[{\"begin\":\"<a>\","
     "\"content\":{\"type\":\"regex\",\"pattern\":\".*\"},\"end\":\"</a>\"}]}",
     {"<a>x</a>,<a>y</a>", ""},
     {"<a>x"}},
    /* A grammar without recursive rules also ends at the fixed text behind it. */
    {"{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":\"grammar\",\"grammar\":\"root ::= "
     "[^x]*\"},\"end\":\"</a>\"}",
     {"<a>hi</a>", "<a></a>"},
     {"<a>h</a>i</a>", "<a>x</a>"}},
    {"{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":\"grammar\",\"grammar\":\"root ::= "
     "\\\"a\\\" | \\\"a</a>b\\\"\"},\"end\":\"</a>\"}",
     {"<a>a</a>"},
     {"<a>a</a>b</a>"}},
    {"{\"type\":\"star\",\"content\":{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":"
     "\"grammar\",\"grammar\":\"root ::= [^x]*\"},\"end\":\"</a>\"}}",
     {"<a>hi</a><a>ho</a>", ""},
     {"<a>x</a>"}},
    {"{\"type\":\"sequence\",\"elements\":[{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{"
     "\"type\":\"grammar\",\"grammar\":\"root ::= a a\\na ::= "
     "[^x]?\"},\"end\":\"</"
     "a>\"},{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":\"grammar\",\"grammar\":"
     "\"root ::= b\\nb ::= [0-9]\\nc ::= \\\"(\\\" c\"},\"end\":\"</a>\"}]}",
     {"<a>hi</a><a>1</a>"},
     {"<a>hi</a>"}},
    {"{\"type\":\"tag\",\"begin\":\"<a>\",\"content\":{\"type\":\"grammar\",\"grammar\":\"root ::= "
     "\\\"(\\\" root \\\")\\\" | [^x]\"},\"end\":\"</a>\"}",
     {"<a>((h))</a>"},
     {"<a>(h))</a>"}},
    {"{\"type\":\"sequence\",\"elements\":[{\"type\":\"regex\",\"pattern\":\"[^{]*\"},{\"type\":"
     "\"json_schema\",\"json_schema\":{\"type\":\"object\"}}]}",
     {"a\nb{}"},
     {"ab"}},
};

static void formats_take_what_they_say(void **state)
{
    char source[2048], err[TEXT_ERR_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text_grammar *g = NULL;
        snprintf(source, sizeof source, "{\"type\":\"structural_tag\",\"format\":%s}",
                 cases[i].format);
        err[0] = '\0';
        if (text_grammar_compile(vocabulary, TEXT_GRAMMAR_STRUCTURAL_TAG, source, strlen(source),
                                 &g, err) != TEXT_OK)
            fail_msg("%s: %s", source, err);
        for (int k = 0; k < 3 && cases[i].good[k]; k++)
            if (!takes(g, cases[i].good[k]))
                fail_msg("%s does not take %s", source, cases[i].good[k]);
        for (int k = 0; k < 3 && cases[i].bad[k]; k++)
            if (takes(g, cases[i].bad[k]))
                fail_msg("%s takes %s", source, cases[i].bad[k]);
        text_grammar_free(g);
    }
}

static void what_is_not_supported_is_refused_by_name(void **state)
{
    static const struct {
        const char *format, *words;
    } refused[] = {
        {"{\"type\":\"qwen_xml_parameter\",\"json_schema\":{}}", "qwen_xml_parameter"},
        {"{\"type\":\"token\",\"token\":5}", "\"token\""},
        {"{\"type\":\"dispatch\",\"rules\":[]}", "dispatch"},
        {"{\"type\":\"json_schema\",\"json_schema\":{},\"style\":\"qwen_xml\"}", "style"},
        {"{\"type\":\"json_schema\",\"json_schema\":{},\"any_order\":true}", "any_order"},
        {"{\"type\":\"json_schema\",\"json_schema\":{\"not\":{\"type\":\"null\"}}}", "not"},
        {"{\"type\":\"json_schema\",\"json_schema\":{\"minItems\":1e9}}", "minItems"},
        {"{\"type\":\"json_schema\"}", "json_schema of json_schema is missing"},
        {"{\"type\":\"any_text\",\"max_tokens\":5}", "max_tokens"},
        {"{\"type\":\"any_text\",\"excludes\":[\"\"]}", "excludes"},
        {"{\"type\":\"const_string\",\"value\":1}", "value"},
        {"{\"type\":\"const_string\",\"value\":\"a\",\"more\":1}", "more"},
        {"{\"type\":\"regex\",\"pattern\":\"(\"}", "regex"},
        {"{\"type\":\"grammar\",\"grammar\":\"start: \\\"a\\\"\"}", "EBNF"},
        {"{\"type\":\"sequence\",\"elements\":[]}", "elements"},
        {LIST("sequence", ANY, S("a")), "only the last element can have no end"},
        {"{\"type\":\"sequence\",\"elements\":[{\"type\":\"regex\",\"pattern\":\"(.|\\n)*\"},{"
         "\"type\":\"json_schema\",\"json_schema\":{\"type\":\"object\"}}]}",
         "would never begin"},
        {"{\"type\":\"sequence\",\"elements\":[{\"type\":\"regex\",\"pattern\":\"[\\\\s\\\\S]+\"},{"
         "\"type\":\"json_schema\",\"json_schema\":{}}]}",
         "would never begin"},
        {"{\"type\":\"sequence\",\"elements\":[{\"type\":\"regex\",\"pattern\":\".*\"},{\"type\":"
         "\"json_schema\",\"json_schema\":{\"type\":\"object\"}}]}",
         "would never begin"},
        {"{\"type\":\"star\",\"content\":" ANY "}", "text without an end"},
        {"{\"type\":\"repeat\",\"min\":3,\"max\":2,\"content\":" S("a") "}", "min and max"},
        {"{\"type\":\"repeat\",\"min\":0,\"max\":1000000000,\"content\":" S("a") "}",
         "min and max"},
        {"{\"type\":\"tag\",\"begin\":{\"type\":\"token\",\"token\":5},\"content\":" BOOL
         ",\"end\":\"x\"}",
         "begin"},
        {TAG("a", BOOL, "[]"), "end"},
        {TAG("a", BOOL, "[\"\",\"b\"]"), "end"},
        {"{\"type\":\"triggered_tags\",\"triggers\":[\"<x\"],\"tags\":[" F "]}",
         "begins with none of the triggers"},
        {"{\"type\":\"triggered_tags\",\"triggers\":[],\"tags\":[" F "]}", "triggers"},
        {"{\"type\":\"triggered_tags\",\"triggers\":[\"<f\"],\"tags\":[" BOOL "]}", "tags"},
        {LISTED(",\"at_least_one\":1"), "at_least_one"},
        {"{\"type\":\"tags_with_separator\",\"tags\":[" F "]}", "separator"},
        {"\"const_string\"", "an object with a type"},
        {"{}", "an object with a type"},
    };
    char source[2048], err[TEXT_ERR_MAX];
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct text_grammar *g = NULL;
        snprintf(source, sizeof source, "{\"format\":%s}", refused[i].format);
        err[0] = '\0';
        int rc = text_grammar_compile(vocabulary, TEXT_GRAMMAR_STRUCTURAL_TAG, source,
                                      strlen(source), &g, err);
        if (rc == TEXT_OK || rc == TEXT_INTERNAL || !strstr(err, refused[i].words))
            fail_msg("%s: %d %s", source, rc, err);
    }
}

/* A grammar inside a format also works behind reasoning. */
static void formats_come_behind_reasoning(void **state)
{
    static const char source[] =
        "{\"open\":[\"<t>\"],\"close\":[\"</"
        "t>\"],\"begun\":true,\"kind\":4,\"source\":\"{\\\"format\\\":{"
        "\\\"type\\\":\\\"grammar\\\",\\\"grammar\\\":\\\"root ::= \\\\\\\"a\\\\\\\"\\\"}}\"}";
    struct text_grammar *g = NULL;
    char err[TEXT_ERR_MAX] = "";
    if (text_grammar_compile(vocabulary, TEXT_GRAMMAR_AFTER_REASONING, source, strlen(source), &g,
                             err) != TEXT_OK)
        fail_msg("%s", err);
    assert_true(takes(g, "so</t>a"));
    assert_false(takes(g, "so</t>b"));
    text_grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_take_what_they_say),
        cmocka_unit_test(what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(formats_come_behind_reasoning),
    };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
