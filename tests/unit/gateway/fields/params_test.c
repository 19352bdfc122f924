/* Tests how a request's fields become `struct params`: values and their ranges, grammars, tools,
 * unknown fields, and the limits on a body. `params_parse_json` reads the text, and
 * `params_init` reads the fields. A refusal is an `api_error` with the field's name in `param`.
 * Invariants: parsing costs bounded time and memory, and docs/reference/openai.md equals the
 * table of fields. */
#include "gateway/fields/document.h"
#include "gateway/fields/read.h"
#include "gateway/fields/table.h"
#include "gateway/tools/grammar_source.h"
#include "gateway/tools/set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { VOCAB = 259 };

/* `field_case` is a body and its expected error. `fields` follow the required fields:
 * {"prompt":"x" FIELDS} or {"messages":[] FIELDS}. `param` is the field that the error names;
 * NULL = the body is valid. */
struct field_case {
    unsigned kinds;
    const char *fields, *param;
};

#define C API_COMPLETIONS
#define H API_CHAT
#define B (API_COMPLETIONS | API_CHAT)

#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"

#define BEYOND "18446744073709551616" /* 2^64, which does not fit into 64 bits */

static const struct field_case cases[] = {
    {B, "", NULL},
    {B, ",\"model\":\"m\"", NULL},
    {B, ",\"model\":null", NULL},
    {B, ",\"model\":3", "model"},
    {C, ",\"max_tokens\":1", NULL},
    {B, ",\"max_tokens\":16.0", NULL},
    {B, ",\"max_tokens\":0", "max_tokens"},
    {B, ",\"max_tokens\":-1", "max_tokens"},
    {B, ",\"max_tokens\":1.5", "max_tokens"},
    {B, ",\"max_tokens\":\"1\"", "max_tokens"},
    {B, ",\"max_tokens\":true", "max_tokens"},
    {H, ",\"max_completion_tokens\":7", NULL},
    {H, ",\"max_completion_tokens\":[]", "max_completion_tokens"},
    /* completions do not have this field */
    {C, ",\"max_completion_tokens\":7", "max_completion_tokens"},
    {B, ",\"n\":128", NULL},
    {B, ",\"n\":0", "n"},
    {B, ",\"n\":129", "n"},
    {C, ",\"n\":2,\"best_of\":2", NULL},
    {C, ",\"n\":2,\"best_of\":3", NULL},
    {C, ",\"n\":2,\"best_of\":1", "best_of"},
    {C, ",\"best_of\":129", "best_of"},
    {B, ",\"timeout\":0.5", NULL},
    {B, ",\"timeout\":0", "timeout"},
    {B, ",\"timeout\":1e9", "timeout"},
    {B, ",\"priority\":-2147483648", NULL},
    {B, ",\"priority\":2147483648", "priority"},
    {C, ",\"best_of\":2,\"stream\":true", "best_of"},
    {C, ",\"n\":2,\"best_of\":2,\"stream\":true", NULL},
    {H, ",\"best_of\":1", "best_of"}, /* chat does not have this field */
    {B, ",\"temperature\":0", NULL},
    {B, ",\"temperature\":2", NULL},
    {B, ",\"temperature\":2.001", "temperature"},
    {B, ",\"temperature\":-0.1", "temperature"},
    {B, ",\"temperature\":\"hot\"", "temperature"},
    {B, ",\"top_p\":1", NULL},
    {B, ",\"top_p\":0", "top_p"},
    {B, ",\"top_p\":1.1", "top_p"},
    {B, ",\"top_k\":-1", NULL},
    {B, ",\"top_k\":0", NULL},
    {B, ",\"top_k\":50", NULL},
    {B, ",\"top_k\":-2", "top_k"},
    {B, ",\"top_k\":2.5", "top_k"},
    {B, ",\"min_p\":0.5", NULL},
    {B, ",\"min_p\":1.5", "min_p"},
    {B, ",\"presence_penalty\":-2", NULL},
    {B, ",\"presence_penalty\":-2.1", "presence_penalty"},
    {B, ",\"frequency_penalty\":2", NULL},
    {B, ",\"frequency_penalty\":3", "frequency_penalty"},
    {B, ",\"repetition_penalty\":1.2", NULL},
    {B, ",\"repetition_penalty\":0", "repetition_penalty"},
    {B, ",\"seed\":0", NULL},
    {B, ",\"seed\":-1", NULL},
    {B, ",\"seed\":9223372036854775807", NULL},
    {B, ",\"seed\":\"a\"", "seed"},
    {B, ",\"stop\":\"x\"", NULL},
    {B, ",\"stop\":[\"x\",\"y\"]", NULL},
    {B, ",\"stop\":[]", NULL},
    {B, ",\"stop\":\"\"", "stop"},
    {B, ",\"stop\":[\"x\",3]", "stop"},
    {B, ",\"stop\":{}", "stop"},
    {B,
     ",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"a\",\"b\",\"c\",\"d\","
     "\"e\",\"f\",\"g\"]",
     NULL},
    {B,
     ",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"a\",\"b\",\"c\",\"d\","
     "\"e\",\"f\",\"g\",\"h\"]",
     "stop"},
    {B, ",\"stop_token_ids\":[1,258]", NULL},
    {B, ",\"stop_token_ids\":[259]", "stop_token_ids"},
    {B, ",\"stop_token_ids\":[-1]", "stop_token_ids"},
    {B, ",\"stop_token_ids\":3", "stop_token_ids"},
    {B, ",\"allowed_token_ids\":[1]", NULL},
    {B, ",\"allowed_token_ids\":[]", "allowed_token_ids"},
    {B, ",\"logit_bias\":{\"5\":-100,\"7\":1.5}", NULL},
    {B, ",\"logit_bias\":{\"x\":1}", "logit_bias"},
    {B, ",\"logit_bias\":{\"259\":1}", "logit_bias"},
    {B, ",\"logit_bias\":{\"5\":\"1\"}", "logit_bias"},
    {B, ",\"logit_bias\":[]", "logit_bias"},
    {B, ",\"min_tokens\":3,\"max_tokens\":3", NULL},
    {B, ",\"min_tokens\":4,\"max_tokens\":3", "min_tokens"},
    {C, ",\"min_tokens\":17", "min_tokens"}, /* 17 is above the default max_tokens, 16 */
    {B, ",\"ignore_eos\":true", NULL},
    {B, ",\"ignore_eos\":1", "ignore_eos"},
    {C, ",\"logprobs\":20", NULL},
    {C, ",\"logprobs\":21", "logprobs"},
    {C, ",\"logprobs\":-1", "logprobs"},
    {C, ",\"logprobs\":-2", "logprobs"},
    {B, ",\"prompt_logprobs\":-1", "prompt_logprobs"},
    {H, ",\"logprobs\":true,\"top_logprobs\":-1", "top_logprobs"},
    {C, ",\"logprobs\":true", "logprobs"},
    {C, ",\"logprobs\":1,\"echo\":true", NULL},
    {C, ",\"logprobs\":1,\"echo\":true,\"max_tokens\":0", NULL},
    {C, ",\"max_tokens\":0", "max_tokens"},
    {H, ",\"max_tokens\":0", "max_tokens"},
    {H, ",\"logprobs\":true,\"top_logprobs\":20", NULL},
    {H, ",\"logprobs\":1", "logprobs"},
    {H, ",\"top_logprobs\":2", "top_logprobs"},
    {H, ",\"logprobs\":false,\"top_logprobs\":0", NULL},
    {H, ",\"logprobs\":true,\"top_logprobs\":21", "top_logprobs"},
    {B, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}", NULL},
    {B, ",\"stream\":true,\"stream_options\":{\"include_obfuscation\":true}", NULL},
    {B, ",\"stream\":true,\"stream_options\":{\"often\":true}", "stream_options.often"},
    {B, ",\"stream_options\":{\"include_usage\":true}", "stream_options"},
    {B, ",\"stream\":true,\"stream_options\":{\"include_usage\":1}",
     "stream_options.include_usage"},
    {B, ",\"stream\":true,\"stream_options\":3", "stream_options"},
    {B, ",\"stream\":\"yes\"", "stream"},
    {C, ",\"echo\":true", NULL},
    {C, ",\"suffix\":\"\"", NULL},
    {C, ",\"suffix\":null", NULL},
    {C, ",\"suffix\":\"x\"", "suffix"},
    {B, ",\"priority\":-5", NULL},
    {B, ",\"priority\":\"high\"", "priority"},
    {B, ",\"cache_salt\":\"s\"", NULL},
    {B, ",\"cache_salt\":1", "cache_salt"},
    {B, ",\"cache_salt\":\"\"", "cache_salt"},
    {B, ",\"user\":\"u\",\"metadata\":{\"a\":[1]},\"store\":false,\"service_tier\":\"auto\"", NULL},
    {B, ",\"store\":true", NULL},
    {B, ",\"never_heard_of\":3", "never_heard_of"},
    {B, ",\"never_heard_of\":null", NULL},
    {H, ",\"modalities\":[\"text\"]", NULL},
    {H, ",\"modalities\":[\"text\",\"audio\"]", "modalities"},
    {B, ",\"length_penalty\":1.0", NULL},
    {B, ",\"length_penalty\":1", NULL},
    {B, ",\"length_penalty\":2.0", "length_penalty"},
    {B, ",\"length_penalty\":\"1\"", "length_penalty"},
    {B, ",\"stream_interval\":3", NULL},
    {B, ",\"stream_interval\":0", "stream_interval"},
    {B, ",\"truncate_prompt_tokens\":-1,\"truncation_side\":\"right\"", NULL},
    {B, ",\"truncate_prompt_tokens\":-2", "truncate_prompt_tokens"},
    {B, ",\"truncation_side\":\"top\"", "truncation_side"},
    {B, ",\"request_id\":\"a-b_c.d:1\"", NULL},
    {B, ",\"request_id\":\"a\\\"b\"", "request_id"},
    {B, ",\"request_id\":\"\"", "request_id"},
    {B, ",\"prompt_logprobs\":0", NULL},
    {B, ",\"prompt_logprobs\":20", NULL},
    {B, ",\"prompt_logprobs\":21", "prompt_logprobs"},
    {B, ",\"prompt_logprobs\":-1", "prompt_logprobs"},
    {B, ",\"prompt_logprobs\":1,\"stream\":true", "prompt_logprobs"},
    {B, ",\"repetition_detection\":{\"min_count\":2}", "repetition_detection"},
    {C, ",\"logprobs\":-1", "logprobs"},
    {B, ",\"response_format\":{\"type\":\"text\"}", NULL},
    {B, ",\"response_format\":{\"type\":\"json_object\"}", NULL},
    {B, ",\"response_format\":{\"type\":\"json_schema\"}", "response_format"},
    {B, ",\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"object\"}}",
     "response_format.schema"},
    {B, ",\"response_format\":{\"type\":\"json_object\",\"json_schema\":null}", NULL},
    {B, ",\"response_format\":{\"type\":\"json_object\",\"json_schema\":{\"schema\":{}}}",
     "response_format.json_schema"},
    {B,
     ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
     "\"description\":\"d\",\"strict\":true,\"schema\":{}}}",
     NULL},
    {B,
     ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
     "\"stricter\":true,\"schema\":{}}}",
     "response_format.json_schema.stricter"},
    {B, ",\"response_format\":{\"type\":\"xml\"}", "response_format"},
    {B, ",\"response_format\":\"text\"", "response_format"},
    {B, ",\"structured_outputs\":{}", "structured_outputs"},
    {B, ",\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"a\"]}", "structured_outputs"},
    {B, ",\"structured_outputs\":{\"backend\":\"x\",\"regex\":\"a\"}", "structured_outputs"},
    {B, ",\"structured_outputs\":{\"choice\":[]}", "structured_outputs"},
    {B, ",\"structured_outputs\":{\"choice\":[\"\"]}", "structured_outputs"},
    {B, ",\"structured_outputs\":{\"json\":3}", "structured_outputs"},
    {B, ",\"structured_outputs\":{\"regex\":3}", "structured_outputs"},
    {B, ",\"structured_outputs\":{\"regex\":\"\"}", "structured_outputs"},
    {B, ",\"guided_regex\":\"a\",\"guided_json\":{}", "guided_regex"},
    {B, ",\"response_format\":{\"type\":\"text\"},\"guided_regex\":\"a\"", NULL},
    {B, ",\"response_format\":{\"type\":\"json_object\"},\"guided_regex\":\"a\"", "guided_regex"},
    {B, ",\"guided_decoding_backend\":\"outlines\"", NULL},
    {B, ",\"temperature\":1e999", "temperature"},
    {B, ",\"seed\":99999999999999999999", "seed"},
    {B, ",\"bad_words\":[\"x\"]", NULL},
    {B, ",\"bad_words\":[]", NULL},
    {B, ",\"bad_words\":[\"\"]", "bad_words"},
    {B, ",\"bad_words\":[\"a\\u0000b\"]", "bad_words"},
    {B, ",\"bad_words\":\"x\"", "bad_words"},
    {B, ",\"bad_words\":[3]", "bad_words"},
    {B, ",\"use_beam_search\":false", NULL},
    {B, ",\"use_beam_search\":true", "use_beam_search"},
    {H, ",\"tools\":[]", NULL}, /* an empty list means no tools */
    {H, ",\"tools\":[],\"tool_choice\":\"auto\"", NULL},
    {H, ",\"tools\":[],\"tool_choice\":\"none\"", NULL},
    {H, ",\"tools\":[],\"tool_choice\":\"required\"", "tool_choice"},
    {H, ",\"chat_template_kwargs\":" BEYOND, "chat_template_kwargs"},
    {H, ",\"structured_outputs\":" BEYOND, "structured_outputs"},
    {H, ",\"structured_outputs\":{\"json\":" BEYOND "}", "structured_outputs"},
    {H, ",\"response_format\":" BEYOND, "response_format"},
    {H, ",\"stream_options\":" BEYOND, "stream_options"},
    {H, ",\"reasoning\":" BEYOND, "reasoning"},
    {H, ",\"logit_bias\":" BEYOND, "logit_bias"},
    {H, ",\"tool_choice\":" BEYOND, "tool_choice"},
    {H, ",\"tools\":[" TOOL "],\"tool_choice\":\"none\"", NULL},
    {H, ",\"tools\":[{}],\"tool_choice\":\"none\"", "tools"},
    {H, ",\"tools\":[{\"type\":\"function\",\"function\":{}}]", "tools"},
    /* tools without tool_choice mean `auto`, which this server has turned off */
    {H, ",\"tools\":[" TOOL "]", "tool_choice"},
    {H, ",\"tool_choice\":\"auto\",\"parallel_tool_calls\":false", NULL},
    {H, ",\"tool_choice\":{\"type\":\"function\"}", "tool_choice"},
    {H, ",\"tool_choice\":{\"function\":{\"name\":\"f\",\"x\":1}}", "tool_choice.function.x"},
    {H, ",\"tool_choice\":{\"function\":{\"name\":\"f\"},\"x\":1}", "tool_choice.x"},
    {H, ",\"reasoning_effort\":\"low\",\"include_reasoning\":false", NULL},
    {H, ",\"reasoning_effort\":\"much\"", "reasoning_effort"},
    {H, ",\"documents\":[{\"text\":\"x\"}]", NULL},
    /* the choice "required" is refused without tools */
    {H, ",\"tool_choice\":\"required\"", "tool_choice"},
    {H,
     ",\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
     NULL},
    {H, ",\"continue_final_message\":true", NULL}, /* this field turns the generation prompt off */
    {H, ",\"continue_final_message\":true,\"add_generation_prompt\":true",
     "continue_final_message"},
    {H, ",\"chat_template_kwargs\":{\"a\":1}", NULL},
    {H, ",\"chat_template_kwargs\":[]", "chat_template_kwargs"},
    {H, ",\"chat_template_kwargs\":{\"chat_template\":\"x\"}", "chat_template_kwargs"},
    {H, ",\"chat_template_kwargs\":{\"messages\":[]}", "chat_template_kwargs"},
    {H, ",\"chat_template\":\"x\"", "chat_template"},
};

static const struct params_policy policy = {.vocab_size = VOCAB, .max_logprobs = 20};

static bool parse(enum api_kind kind, const char *fields, struct params *p, struct api_error *e)
{
    char body[4096];
    snprintf(body, sizeof body, "{%s%s}", kind == C ? "\"prompt\":\"x\"" : "\"messages\":[]",
             fields);
    json_t *j = params_parse_json(str_from(body), e);
    *p = (struct params){0};
    return j && params_init(p, kind, j, &policy, e);
}

/* The test checks which grammar results from each way to request a grammar. */
static void test_grammars(void **state)
{
    static const struct {
        const char *fields;
        enum grammar_kind kind;
        const char *source;
    } said[] = {
        {"", GRAMMAR_NONE, ""},
        {",\"response_format\":{\"type\":\"text\"}", GRAMMAR_NONE, ""},
        {",\"structured_outputs\":null", GRAMMAR_NONE, ""},
        {",\"structured_outputs\":{\"choice\":[\"a\x7F\\u007f\\u0001\",\"\x7F\"]}", GRAMMAR_LARK,
         "start: \"a\\u007f\\u007f\\u0001\" | \"\\u007f\""},
        {",\"response_format\":{\"type\":\"json_object\"}", GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"object\"}"},
        {",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
         "\"strict\":"
         "true,\"schema\":{\"type\": \"null\"}}}",
         GRAMMAR_JSON_SCHEMA, "{\"type\":\"null\"}"},
        {",\"response_format\":{\"type\":\"structural_tag\",\"format\":{\"type\":\"any_text\"}}",
         GRAMMAR_STRUCTURAL_TAG,
         "{\"type\":\"structural_tag\",\"format\":{\"type\":\"any_text\"}}"},
        {",\"response_format\":{\"type\":\"structural_tag\",\"structures\":[],\"triggers\":[]}",
         GRAMMAR_STRUCTURAL_TAG, "{\"type\":\"structural_tag\",\"structures\":[],\"triggers\":[]}"},
        {",\"structured_outputs\":{\"json\":\"{}\",\"regex\":null,\"json_object\":false}",
         GRAMMAR_JSON_SCHEMA, "{}"},
        {",\"structured_outputs\":{\"json\":{\"b\":1,\"a\":2}}", GRAMMAR_JSON_SCHEMA,
         "{\"b\":1,\"a\":2}"},
        {",\"structured_outputs\":{\"json_object\":true}", GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"object\"}"},
        {",\"guided_choice\":[\"a\\\"b\",\"\u00e9\"]", GRAMMAR_LARK,
         "start: \"a\\\"b\" | \"\u00e9\""},
        {",\"guided_grammar\":\"start: x\"", GRAMMAR_LARK, "start: x"},
        {",\"guided_regex\":\"a+\"", GRAMMAR_REGEX, "a+"},
    };
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct params p;
        struct api_error e = {0};
        if (!parse(C, said[i].fields, &p, &e))
            fail_msg("%s: %s", said[i].fields, e.message);
        if (p.sampling.grammar_kind != said[i].kind ||
            !str_eq_c(p.sampling.grammar, said[i].source))
            fail_msg("%s: %d " STR_FMT, said[i].fields, p.sampling.grammar_kind,
                     STR_ARG(p.sampling.grammar));
        params_fini(&p);
    }
}

/* A call's grammar has each tool's parameters as a separate schema with its own `$defs`. A named
 * function, or no parallel calls, allows one call. A response_format beside forced calls has no
 * effect. */
static void test_tool_grammars(void **state)
{
#define DRAW                                                                                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"draw\",\"parameters\":{\"$ref\":\"#/$defs/"   \
    "d\",\"$defs\":{\"d\":{\"type\":\"object\"}}}}}"
#define CALL(name, i)                                                                              \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"" name                             \
    "\"},\"arguments\":{\"$ref\":\"#/$defs/tool" #i                                                \
    "\"}},\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}"
#define CALLS(items, behind)                                                                       \
    "{\"type\":\"array\",\"minItems\":1,\"items\":{\"anyOf\":[" items                              \
    "]},\"x-guidance\":{\"whitespace_flexible\":false}" behind "}"
#define NO_PARAMETERS                                                                              \
    "\"tool0\":{\"properties\":{},\"type\":\"object\",\"additionalProperties\":false}"
#define ONE ",\"$defs\":{" NO_PARAMETERS "}"
#define BOTH_OF                                                                                    \
    ",\"$defs\":{" NO_PARAMETERS                                                                   \
    ",\"tool1\":{\"$ref\":\"#/$defs/tool1/$defs/d\",\"$defs\":{\"d\":{\"type\":\"object\"}},"      \
    "\"type\":\"object\"}}"
    static const struct {
        const char *fields, *source; /* `source`: expected grammar; NULL = the request gets a 400 */
    } said[] = {
        {"\"required\"", CALLS(CALL("f", 0) "," CALL("draw", 1), BOTH_OF)},
        {"\"required\",\"parallel_tool_calls\":false",
         CALLS(CALL("f", 0) "," CALL("draw", 1), BOTH_OF ",\"maxItems\":1")},
        {"{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
         CALLS(CALL("f", 0), ONE ",\"maxItems\":1")},
        {"{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", NULL},
        {"\"required\",\"response_format\":{\"type\":\"json_object\"}",
         CALLS(CALL("f", 0) "," CALL("draw", 1), BOTH_OF)},
    };
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct params p;
        struct api_error e = {0};
        char fields[1024];
        snprintf(fields, sizeof fields, ",\"tools\":[" TOOL "," DRAW "],\"tool_choice\":%s",
                 said[i].fields);
        bool ok = parse(H, fields, &p, &e) && grammar_from_tools(&p, &e);
        if (ok != (said[i].source != NULL))
            fail_msg("%s: %s", fields, e.message);
        assert_int_equal(ok, said[i].source != NULL);
        assert_string_equal(e.param, ok ? "" : "tool_choice");
        if (ok && !str_eq_c(p.sampling.grammar, said[i].source))
            fail_msg("%s: " STR_FMT, fields, STR_ARG(p.sampling.grammar));
        params_fini(&p);
    }
}

static void test_fields(void **state)
{
    static const enum api_kind kinds[] = {C, H};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t k = 0; k < 2; k++) {
            struct params p;
            struct api_error e = {0};
            if (!(cases[i].kinds & kinds[k]))
                continue;
            bool ok = parse(kinds[k], cases[i].fields, &p, &e);
            if (ok != (cases[i].param == NULL) ||
                (!ok && strcmp(e.param, cases[i].param ? cases[i].param : "") != 0))
                fail_msg("%s: param \"%s\", message \"%s\"", cases[i].fields, e.param, e.message);
            if (!ok) {
                assert_int_equal(e.http_status, 400);
                assert_true(e.message[0]);
            }
            params_fini(&p);
        }
    }
}

struct body_case {
    const char *name, *body;
    int status;
};

static const struct body_case bodies[] = {
    {"empty", "", 400},
    {"not JSON", "{", 400},
    {"a list", "[]", 400},
    {"trailing bytes", "{} x", 400},
    {"duplicate keys", "{\"n\":1,\"n\":2}", 400},
    {"NaN", "{\"temperature\":NaN}", 400},
    {"infinite: its field refuses it", "{\"temperature\":1e999}", 0},
    {"invalid UTF-8", "{\"prompt\":\"\xFF\"}", 400},
    {"overlong UTF-8", "{\"prompt\":\"\xC0\xAF\"}", 400},
    {"lone surrogate", "{\"prompt\":\"\\ud800\"}", 400},
    {"number too big: as above", "{\"seed\":99999999999999999999}", 0},
    {"NUL escape is text", "{\"prompt\":\"a\\u0000b\"}", 0},
};

static void test_bodies(void **state)
{
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct api_error e = {0};
        json_t *j = params_parse_json(str_from(bodies[i].body), &e);
        if (e.http_status != bodies[i].status || (j == NULL) != (e.http_status != 0))
            fail_msg("%s: %d %s", bodies[i].name, e.http_status, e.message);
        json_decref(j);
    }
}

static void test_bounds(void **state)
{
    struct api_error e = {0};
    struct strbuf b;
    strbuf_init(&b, 0);
    for (int i = 0; i < 65; i++)
        strbuf_append_c(&b, "[");
    assert_null(params_parse_json(strbuf_str(&b), &e));
    assert_int_equal(e.http_status, 400);
    strbuf_reset(&b);
    strbuf_append_c(&b, "{\"prompt\":[1");
    for (unsigned i = 0; i < PARAMS_MAX_VALUES; i++)
        strbuf_append_c(&b, ",1");
    strbuf_append_c(&b, "]}");
    e = (struct api_error){0};
    assert_null(params_parse_json(strbuf_str(&b), &e));
    assert_int_equal(e.http_status, 413);
    /* `sizes` tests the limit on JSON values, which counts a key as a value, and a number above
     * 64 bits as three values. */
    static const struct {
        const char *begins, *each, *ends;
        unsigned n;
        int status;
    } sizes[] = {
        {"{\"a\":[1", ",1", "]}", PARAMS_MAX_VALUES - 16, 0},
        {"{\"a\":[1", ",999999999999999999999", "]}", PARAMS_MAX_VALUES / 3 - 16, 0},
        {"{\"a\":[1", ",999999999999999999999", "]}", PARAMS_MAX_VALUES / 3 + 16, 413},
        {"{\"a\":[1", ",{\"b\":1}", "]}", PARAMS_MAX_VALUES / 3 - 16, 0},
        {"{\"a\":[1", ",{\"b\":1}", "]}", PARAMS_MAX_VALUES / 3 + 16, 413},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        strbuf_reset(&b);
        strbuf_append_c(&b, sizes[i].begins);
        for (unsigned k = 0; k < sizes[i].n; k++)
            strbuf_append_c(&b, sizes[i].each);
        strbuf_append_c(&b, sizes[i].ends);
        e = (struct api_error){0};
        json_decref(params_parse_json(strbuf_str(&b), &e));
        assert_int_equal(e.http_status, sizes[i].status);
    }
    /* Brackets and commas inside strings do not count. */
    strbuf_reset(&b);
    strbuf_append_c(&b, "{\"prompt\":\"");
    for (int i = 0; i < 1000; i++)
        strbuf_append_c(&b, "[,\\\"");
    strbuf_append_c(&b, "\"}");
    e = (struct api_error){0};
    json_t *j = params_parse_json(strbuf_str(&b), &e);
    assert_non_null(j);
    json_decref(j);
    strbuf_fini(&b);
}

static void test_values(void **state)
{
    struct params p;
    struct api_error e = {0};
    assert_true(parse(C,
                      ",\"temperature\":0.001,\"top_k\":-1,\"top_p\":0.9,\"seed\":7,\"n\":3,"
                      "\"stop\":[\"a\",\"b\"],\"stop_token_ids\":[9],\"logit_bias\":{\"5\":-300},"
                      "\"logprobs\":2,\"cache_salt\":\"s\"",
                      &p, &e));
    assert_true(p.sampling.temperature == 0.01f);
    assert_int_equal(p.sampling.top_k, 0);
    assert_true(p.sampling.top_p == 0.9f);
    assert_int_equal(p.sampling.seed, 7);
    assert_int_equal(p.n, 3);
    assert_int_equal(p.n_stops, 2);
    assert_int_equal(p.sampling.stop_ids.n, 1);
    assert_int_equal(p.sampling.stop_ids.ptr[0], 9);
    assert_true(p.sampling.logit_bias[0].bias == -100.0f);
    assert_int_equal(p.sampling.n_logprobs, 2);
    assert_int_equal(p.sampling.max_tokens, 16);
    assert_true(p.add_special_tokens);
    params_fini(&p);
    assert_true(parse(H, ",\"temperature\":1e-6,\"top_p\":0.5,\"logprobs\":true", &p, &e));
    assert_true(p.sampling.temperature == 0.0f);
    /* greedy decoding resets the fields that only affect sampling */
    assert_true(p.sampling.top_p == 1.0f);
    assert_int_equal(p.sampling.n_logprobs, 0);
    assert_int_equal(p.max_tokens, 0);
    assert_true(p.add_generation_prompt);
    assert_false(p.add_special_tokens);
    params_fini(&p);
    assert_true(parse(H, ",\"max_tokens\":5,\"max_completion_tokens\":7", &p, &e));
    assert_int_equal(p.max_tokens, 7);
    assert_int_equal(p.sampling.n_logprobs, -1);
    params_fini(&p);
}

/* The number of tools is bounded. Tools in namespaces count too. */
static void test_number_of_tools(void **state)
{
    for (unsigned k = 0; k < 4; k++) {
        const bool is_chat = k < 2;
        const unsigned n = TOOL_SET_MAX - !is_chat + k % 2; /* the namespace itself counts as one */
        struct params p;
        struct api_error e = {0};
        struct strbuf b;
        strbuf_init(&b, 0);
        strbuf_append_c(&b, is_chat ? "{\"messages\":[],\"tool_choice\":\"none\",\"tools\":["
                                    : "{\"input\":\"x\",\"tool_choice\":\"none\",\"tools\":[{"
                                      "\"type\":\"namespace\",\"name\":\"n\",\"tools\":[");
        for (unsigned i = 0; i < n; i++)
            strbuf_printf(&b,
                          is_chat ? "%s{\"type\":\"function\",\"function\":{\"name\":\"f%u\"}}"
                                  : "%s{\"type\":\"function\",\"name\":\"f%u\"}",
                          i > 0 ? "," : "", i);
        strbuf_append_c(&b, is_chat ? "]}" : "]}]}");
        const bool ok = params_init(&p, is_chat ? API_CHAT : API_RESPONSES,
                                    params_parse_json(strbuf_str(&b), &e), &policy, &e);
        assert_int_equal(ok, k % 2 == 0);
        if (!ok) {
            assert_string_equal(e.param, "tools");
            assert_non_null(strstr(e.message, "at most 4096 are allowed"));
        }
        params_fini(&p);
        strbuf_fini(&b);
    }
}

/* The server's policy decides about unknown fields, automatic tool calls, log-probabilities and
 * chat templates in requests. */
static void test_policy(void **state)
{
    static const struct {
        struct params_policy policy;
        const char *fields;
        bool ok;
    } with[] = {
        {{.unknown = UNKNOWN_WARN}, ",\"never_heard_of\":3", true},
        {{.unknown = UNKNOWN_IGNORE}, ",\"never_heard_of\":3", true},
        {{.unknown = UNKNOWN_IGNORE}, ",\"functions\":[{}]", false},
        {{.auto_tools = true}, ",\"tools\":[" TOOL "]", true},
        {{.auto_tools = true}, ",\"tools\":[" TOOL "],\"tool_choice\":\"perhaps\"", false},
        {{0}, ",\"tools\":[" TOOL "],\"tool_choice\":\"required\"", true},
        {{.trust_chat_template = true}, ",\"chat_template\":\"x\"", true},
        {{.max_logprobs = 64}, ",\"logprobs\":true,\"top_logprobs\":64", true},
        {{.max_logprobs = 64}, ",\"logprobs\":true,\"top_logprobs\":65", false},
        {{.max_logprobs = 64}, ",\"prompt_logprobs\":64", true},
        {{.max_logprobs = 3}, ",\"logprobs\":true,\"top_logprobs\":3", true},
        {{.max_logprobs = 3}, ",\"logprobs\":true,\"top_logprobs\":4", false},
        {{.max_logprobs = 3}, ",\"prompt_logprobs\":4", false},
        {{.max_logprobs = 3}, ",\"prompt_logprobs\":-1", false},
        {{0}, ",\"logprobs\":true,\"top_logprobs\":0", true},
        {{0}, ",\"logprobs\":true,\"top_logprobs\":1", false},
    };
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        struct params p;
        struct api_error e = {0};
        char body[256];
        snprintf(body, sizeof body, "{\"messages\":[]%s}", with[i].fields);
        json_t *j = params_parse_json(str_from(body), &e);
        assert_non_null(j);
        bool ok = params_init(&p, H, j, &with[i].policy, &e);
        params_fini(&p);
        if (ok != with[i].ok)
            fail_msg("%s: %s", body, e.message);
    }
}

/* Many unknown fields are accepted, and the log gets a few lines for all of them. */
static void test_many_unknown_fields_take_few_lines(void **state)
{
    static const struct params_policy lax = {.unknown = UNKNOWN_WARN};
    char path[] = "/tmp/coxtest-log-XXXXXX", line[4096];
    int log = mkstemp(path), own = dup(STDERR_FILENO), n_lines = 0;
    struct strbuf b;
    struct params p;
    struct api_error e = {0};
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"");
    for (int i = 0; i < 1000; i++)
        strbuf_printf(&b, ",\"member_%d\":1", i);
    strbuf_append_c(&b, "}]");
    for (int i = 0; i < 1000; i++)
        strbuf_printf(&b, ",\"field_%d\":1", i);
    strbuf_append_c(&b, "}");
    json_t *j = params_parse_json(strbuf_str(&b), &e);
    assert_non_null(j);
    dup2(log, STDERR_FILENO);
    bool ok = params_init(&p, H, j, &lax, &e);
    dup2(own, STDERR_FILENO);
    close(own);
    params_fini(&p);
    strbuf_fini(&b);
    FILE *f = fdopen(log, "r");
    rewind(f);
    while (fgets(line, sizeof line, f))
        n_lines++;
    fclose(f);
    unlink(path);
    assert_true(ok);
    assert_int_equal(n_lines, 16);
    assert_non_null(strstr(line, "more="));
}

static void test_seed_is_drawn(void **state)
{
    struct params a, b;
    struct api_error e = {0};
    assert_true(parse(C, "", &a, &e));
    assert_true(parse(C, "", &b, &e));
    assert_true(a.sampling.seed != b.sampling.seed);
    params_fini(&a);
    params_fini(&b);
}

/* The table has a row for every field of vLLM's endpoints. */
static void test_every_field_of_vllm(void **state)
{
    static const struct {
        unsigned kinds;
        const char *names;
    } fields[] = {
        {B,
         "model max_tokens n temperature top_p top_k min_p presence_penalty frequency_penalty "
         "repetition_penalty seed stop stop_token_ids ignore_eos min_tokens logprobs "
         "prompt_logprobs logprob_token_ids logit_bias bad_words allowed_token_ids "
         "response_format structured_outputs thinking_token_budget stream stream_options "
         "stream_interval echo add_special_tokens truncate_prompt_tokens truncation_side priority "
         "cache_salt request_id session_id user use_beam_search length_penalty return_token_ids "
         "return_tokens_as_token_ids return_prompt_text repetition_detection kv_transfer_params "
         "ec_transfer_params vllm_xargs watermarking skip_special_tokens "
         "spaces_between_special_tokens include_stop_str_in_output guided_json guided_regex "
         "guided_choice guided_grammar guided_decoding_backend guided_whitespace_pattern"},
        {C, "prompt prompt_embeds suffix best_of"},
        {H, "messages max_completion_tokens top_logprobs tools tool_choice parallel_tool_calls "
            "reasoning_effort include_reasoning add_generation_prompt continue_final_message "
            "documents chat_template chat_template_kwargs mm_processor_kwargs media_io_kwargs"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char names[2048], *save;
        snprintf(names, sizeof names, "%s", fields[i].names);
        for (char *w = strtok_r(names, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
            unsigned found = 0;
            const struct field *f;
            for (size_t k = 0; (f = fields_at(k)); k++)
                if (strcmp(f->name, w) == 0)
                    found |= f->kinds;
            if ((found & fields[i].kinds) != fields[i].kinds)
                fail_msg("%s has no row", w);
        }
    }
}

/* docs/reference/openai.md equals the document made from the table. */
static void test_document(void **state)
{
    struct strbuf want;
    char *got = NULL;
    size_t cap = 0;
    FILE *f = fopen("docs/reference/openai.md", "r");
    if (!f)
        fail_msg("docs/reference/openai.md: run the test in the source folder");
    ssize_t n = getdelim(&got, &cap, '\0', f);
    fclose(f);
    strbuf_init(&want, 0);
    fields_document(&want);
    if (n < 0 || (size_t)n != want.len || memcmp(got, want.ptr, want.len) != 0)
        fail_msg("docs/reference/openai.md is old: cox-gateway fields > docs/reference/openai.md");
    strbuf_fini(&want);
    free(got);
}

static void test_defaults_of_the_model(void **state)
{
    const struct sampling_defaults d = {0.6, 0.9, 0.05, 1.1, 20};
    const struct params_policy with = {.vocab_size = VOCAB, .max_logprobs = 20, .defaults = &d};
    struct api_error e = {0};
    struct params p;
    assert_true(params_init(&p, C, json_loads("{\"prompt\":\"x\"}", 0, NULL), &with, &e));
    assert_true(p.temperature == 0.6 && p.top_p == 0.9 && p.min_p == 0.05 && p.top_k == 20 &&
                p.repetition_penalty == 1.1);
    params_fini(&p);
    json_t *j =
        json_loads("{\"prompt\":\"x\",\"temperature\":1,\"top_k\":null,\"top_p\":0.5}", 0, NULL);
    assert_true(params_init(&p, C, j, &with, &e));
    assert_true(p.temperature == 1 && p.top_p == 0.5 && p.min_p == 0.05 && p.top_k == 20);
    params_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_of_the_model),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_grammars),
        cmocka_unit_test(test_tool_grammars),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_number_of_tools),
        cmocka_unit_test(test_policy),
        cmocka_unit_test(test_document),
        cmocka_unit_test(test_every_field_of_vllm),
        cmocka_unit_test(test_many_unknown_fields_take_few_lines),
        cmocka_unit_test(test_seed_is_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
