/* Tests OpenAI's responses API. The first part reads bodies and checks the messages and tools
 * that the chat template gets, or the refusal. The second part posts bodies to `serving`, sends
 * tokens as the head, and compares the exact bytes of the answers and streams. Invariant: the
 * cost of reading a body is linear in its length. */
#include "gateway/dialects/dialects.h"
#include "gateway/dialects/responses.h"
#include "gateway/tools/set.h"
#include "tests/unit/gateway/serving/serving_world.h"

#include "tests/unit/gateway/dialects/body_cases.h"
#include <ctype.h>

static const struct body_dialect dialect = {API_RESPONSES, responses_for_template};

static bool read_body(const char *body, struct params *p, struct api_error *e)
{
    return body_read(&dialect, body, p, e);
}

#define CALL(id, name, arguments)                                                                  \
    "{\"type\":\"function_call\",\"call_id\":\"" id "\",\"name\":\"" name                          \
    "\",\"arguments\":\"" arguments "\",\"status\":\"completed\"}"
#define CALLED(id, name, arguments)                                                                \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"" name                \
    "\", \"arguments\": \"" arguments "\"}}"

static void test_items(void **state)
{
    static const struct body_case cases[] = {
        {"\"input\":\"hi\"", "[" USER("hi") "]", false},
        {"\"input\":\"hi\",\"instructions\":\"be kind\"",
         "[{\"role\": \"system\", \"content\": \"be kind\"}, " USER("hi") "]", false},
        /* two system messages at the start become one; a later system message stays separate */
        {"\"instructions\":\"a\",\"input\":[{\"role\":\"developer\",\"content\":\"b\"}," USER(
             "c") ",{\"type\":\"message\",\"role\":\"system\",\"content\":\"d\"}]",
         "[{\"role\": \"system\", \"content\": \"a\\n\\nb\"}, " USER(
             "c") ", {\"role\": \"system\", \"content\": \"d\"}]",
         false},
        {"\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},"
         "{\"type\":\"input_text\",\"text\":\"b\"}]},{\"type\":\"message\",\"id\":\"msg_1\","
         "\"status\":\"completed\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
         "\"text\":\"c\",\"annotations\":[]}]}," USER("d") "]",
         "[" USER("a\\nb") ", " MODEL("c") ", " USER("d") "]", false},
        /* reasoning, text and calls become one message */
        {"\"input\":[" USER(
             "a") ",{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[],\"content\":[{\"type\":"
                  "\"reasoning_text\",\"text\":\"t\"}]},{\"role\":\"assistant\",\"content\":\"b\"}"
                  "," CALL("x", "f", "{\\\"k\\\":1}") "," CALL(
                      "y", "g",
                      "") ",{\"type\":"
                          "\"function_call_output\",\"call_id\":\"x\",\"output\":\"r\"},{\"type\":"
                          "\"function_call_output\",\"call_id\":\"y\",\"output\":[{\"type\":"
                          "\"input_text\",\"text\":\"s\"}]}]",
         "[" USER("a") ", {\"role\": \"assistant\", \"content\": \"b\", \"reasoning\": \"t\", "
                       "\"tool_calls\": [" CALLED("x", "f", "{\\\"k\\\":1}") ", " CALLED(
                           "y", "g", "") "]}, {\"role\": \"tool\", \"tool_call_id\": \"x\", "
                                         "\"content\": \"r\"}, {\"role\": \"tool\", "
                                         "\"tool_call_id\": \"y\", \"content\": \"s\"}]",
         false},
        {"\"input\":[" CALL("x", "f", "{}") "," MODEL("late") "]",
         "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" CALLED(
             "x", "f", "{}") "]}, " MODEL("late") "]",
         false},
        /* the summary is used when the reasoning has no text; encrypted content is left out */
        {"\"input\":[{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":"
         "\"t\"}]},{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"x\"}," USER(
             "a") "]",
         "[{\"role\": \"assistant\", \"content\": \"\", \"reasoning\": \"t\"}, " USER("a") "]",
         false},
        /* the model continues an answer with status "incomplete", but not a complete answer */
        {"\"input\":[" USER("a") ",{\"type\":\"message\",\"role\":\"assistant\",\"status\":"
                                 "\"incomplete\",\"content\":[{\"type\":\"output_text\",\"text\":"
                                 "\"b\"}]}]",
         "[" USER("a") ", " MODEL("b") "]", true},
        {"\"input\":[" USER("a") "," MODEL("b") "]", "[" USER("a") ", " MODEL("b") "]", false},
    };
    check_bodies(&dialect, "", cases, sizeof cases / sizeof *cases);
}

/* Items of tools that are not functions are read too, and items with nothing for a model to read
 * are left out. */
static void test_items_of_other_tools(void **state)
{
    static const struct body_case cases[] = {
        {"\"input\":[" USER(
             "a") ",{\"type\":\"custom_tool_call\",\"call_id\":\"x\",\"name\":\"c\","
                  "\"input\":\"1\\n\\\"\"},{\"type\":\"custom_tool_call_output\","
                  "\"call_id\":\"x\",\"output\":\"r\"},{\"type\":\"web_search_call\","
                  "\"id\":\"w\"},{\"type\":\"mcp_list_tools\",\"tools\":[]},{\"type\":"
                  "\"tool_search_call\"},{\"type\":\"additional_tools\",\"tools\":[]}]",
         "[" USER("a") ", {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" CALLED(
             "x", "c", "{\\\"input\\\":\\\"1\\\\n\\\\\\\"\\\"}") "]}, {\"role\": \"tool\", "
                                                                 "\"tool_call_id\": \"x\", "
                                                                 "\"content\": \"r\"}]",
         false},
        {"\"input\":[{\"type\":\"local_shell_call\",\"id\":\"i\",\"call_id\":\"x\",\"action\":{"
         "\"type\":\"exec\"}},{\"type\":\"local_shell_call_output\",\"id\":\"x\",\"output\":\"r\"},"
         "{"
         "\"type\":\"apply_patch_call\",\"call_id\":\"y\",\"operation\":{\"type\":\"delete_file\"}}"
         ",{"
         "\"type\":\"apply_patch_call_output\",\"call_id\":\"y\",\"status\":\"completed\"},{"
         "\"type\":"
         "\"shell_call_output\",\"call_id\":\"z\",\"output\":[{\"stdout\":\"s\"}]}]",
         "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" CALLED(
             "x", "local_shell", "{\\\"type\\\":\\\"exec\\\"}") "]}, {\"role\": \"tool\", "
                                                                "\"tool_call_id\": \"x\", "
                                                                "\"content\": \"r\"}, {\"role\": "
                                                                "\"assistant\", "
                                                                "\"content\": null, "
                                                                "\"tool_calls\": [" CALLED(
                                                                    "y", "apply_patch",
                                                                    "{\\\"type\\\":\\\"delete_"
                                                                    "file\\\"}") "]}, {"
                                                                                 "\"role\": "
                                                                                 "\"tool\", "
                                                                                 "\"tool_call_id\":"
                                                                                 " \"y\", "
                                                                                 "\"content\": "
                                                                                 "\"completed\"}, "
                                                                                 "{\"role\": "
                                                                                 "\"tool\", "
                                                                                 "\"tool_call_id\":"
                                                                                 " \"z\", "
                                                                                 "\"content\": "
                                                                                 "\"[{"
                                                                                 "\\\"stdout\\\":"
                                                                                 "\\\"s\\\"}]\"}]",
         false},
        {"\"input\":[{\"type\":\"mcp_call\",\"id\":\"x\",\"name\":\"m\",\"arguments\":\"{}\","
         "\"server_label\":\"s\",\"output\":\"r\"},{\"type\":\"code_interpreter_call\",\"id\":"
         "\"y\","
         "\"code\":\"1\",\"outputs\":[{\"type\":\"logs\",\"logs\":\"l\"}]}]",
         "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" CALLED(
             "x", "m",
             "{}") "]}, {\"role\": \"tool\", \"tool_call_id\": \"x\", \"content\": \"r\"}, "
                   "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" CALLED(
                       "y", "code_interpreter",
                       "{\\\"code\\\":\\\"1\\\"}") "]}, {\"role\": "
                                                   "\"tool\", \"tool_call_id\": \"y\", "
                                                   "\"content\": "
                                                   "\"[{\\\"type\\\":\\\"logs\\\",\\\"logs\\\":"
                                                   "\\\"l\\\"}]\"}]",
         false},
        /* a function of a namespace gets the joined name */
        {"\"input\":[{\"type\":\"function_call\",\"call_id\":\"x\",\"namespace\":\"n\",\"name\":"
         "\"f\",\"arguments\":\"{}\"}," USER("a") "]",
         "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" CALLED(
             "x", "n__f", "{}") "]}, " USER("a") "]",
         false},
    };
    check_bodies(&dialect, "", cases, sizeof cases / sizeof *cases);
}

static void test_fields(void **state)
{
    struct params p;
    struct api_error e;
    assert_true(read_body(
        "{\"input\":\"a\",\"max_output_tokens\":5,\"temperature\":0.5,\"top_logprobs\":3,"
        "\"include\":[\"message.output_text.logprobs\",\"reasoning.encrypted_content\"],"
        "\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"},\"tools\":[{\"type\":\"function\","
        "\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":\"object\"},\"strict\":true}"
        "],\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"},\"parallel_tool_calls\":false,"
        "\"store\":true,\"background\":false,\"truncation\":\"disabled\",\"metadata\":{\"k\":\"v\"}"
        ",\"text\":{\"verbosity\":\"medium\",\"format\":{\"type\":\"text\"}}}",
        &p, &e));
    char *tools = json_dumps(p.tools, 0);
    assert_string_equal(tools, "[{\"type\": \"function\", \"function\": {\"name\": \"f\", "
                               "\"description\": \"d\", \"parameters\": {\"type\": \"object\"}}}]");
    free(tools);
    assert_int_equal(p.sampling.max_tokens, 5);
    assert_int_equal(p.sampling.n_logprobs, 3);
    assert_true(p.want_logprobs);
    assert_int_equal(p.tool_choice, TOOL_CHOICE_REQUIRED);
    assert_true(str_eq_c(p.tool_name, "f"));
    assert_false(p.parallel_tool_calls);
    assert_true(str_eq_c(p.reasoning_effort, "low"));
    assert_int_equal(p.sampling.grammar_kind, GRAMMAR_NONE);
    params_fini(&p);
    assert_true(read_body("{\"input\":\"a\",\"tools\":[],\"tool_choice\":\"auto\",\"text\":{"
                          "\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"strict\":true,"
                          "\"schema\":{\"type\":\"object\"}}}}",
                          &p, &e));
    assert_null(p.tools);
    assert_int_equal(p.tool_choice, TOOL_CHOICE_NONE);
    assert_int_equal(p.sampling.n_logprobs, -1);
    assert_int_equal(p.sampling.grammar_kind, GRAMMAR_JSON_SCHEMA);
    assert_true(str_eq_c(p.sampling.grammar, "{\"type\":\"object\"}"));
    params_fini(&p);
    assert_true(
        read_body("{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"json_object\"}}}", &p, &e));
    assert_int_equal(p.sampling.grammar_kind, GRAMMAR_JSON_SCHEMA);
    params_fini(&p);
}

/* The test checks which tools remain and which tool is forced for each `tool_choice`. */
static void test_choices(void **state)
{
#define SET                                                                                        \
    "\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"custom\",\"name\":\"c\"},{"     \
    "\"type\":"                                                                                    \
    "\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"type\":"    \
    "\"function\",\"name\":\"g\"}]},{\"type\":\"web_search\"}],\"tool_choice\":"
#define ALLOW(mode, list) "{\"type\":\"allowed_tools\",\"mode\":\"" mode "\",\"tools\":[" list "]}"
    static const struct {
        const char *choice;
        size_t n;
        enum tool_choice is;
        const char *name, *left; /* `name`: name of the forced tool */
    } cases[] = {
        {"\"auto\"", 4, TOOL_CHOICE_AUTO, "", "web_search"},
        {"\"none\"", 4, TOOL_CHOICE_NONE, "", "web_search"},
        {"\"required\"", 4, TOOL_CHOICE_REQUIRED, "", "web_search"},
        {"{\"type\":\"custom\",\"name\":\"c\"}", 4, TOOL_CHOICE_REQUIRED, "c", "web_search"},
        {"{\"type\":\"function\",\"name\":\"f\"}", 4, TOOL_CHOICE_REQUIRED, "f", "web_search"},
        {"{\"type\":\"function\",\"name\":\"g\"}", 4, TOOL_CHOICE_REQUIRED, "n__g", "web_search"},
        {"{\"type\":\"function\",\"name\":\"f\",\"namespace\":\"n\"}", 4, TOOL_CHOICE_REQUIRED,
         "n__f", "web_search"},
        {ALLOW("auto",
               "{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"custom\",\"name\":\"c\"}"),
         2, TOOL_CHOICE_AUTO, "", "web_search"},
        {ALLOW("required", "{\"type\":\"function\",\"name\":\"n__g\"}"), 1, TOOL_CHOICE_REQUIRED,
         "", "web_search"},
        {ALLOW("auto", "{\"type\":\"mcp\",\"server_label\":\"s\"}"), 0, TOOL_CHOICE_NONE, "",
         "web_search,mcp"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct params p;
        struct api_error e = {0};
        struct strbuf b, left;
        strbuf_init(&b, 0);
        strbuf_init(&left, 0);
        strbuf_printf(&b, "{\"input\":\"a\"," SET "%s}", cases[i].choice);
        if (!read_body(strbuf_str(&b).ptr, &p, &e))
            fail_msg("%s: %s", cases[i].choice, e.message);
        tool_set_left_out(&p, &left);
        assert_int_equal(json_array_size(p.tools), cases[i].n);
        assert_int_equal(p.tool_choice, cases[i].is);
        assert_true(str_eq_c(p.tool_name, cases[i].name));
        assert_true(str_eq_c(strbuf_str(&left), cases[i].left));
        params_fini(&p);
        strbuf_fini(&b);
        strbuf_fini(&left);
    }
}

/* Every tool is found by a lookup in constant time, even with many tools and a list that allows
 * each of them. */
static void test_many_tools_are_chosen_from(void **state)
{
    enum { N = 4000 };
    struct params p;
    struct api_error e = {0};
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "{\"input\":\"a\",\"tools\":[");
    for (int i = 0; i < N; i++)
        strbuf_printf(&b, "%s{\"type\":\"function\",\"name\":\"f%d\"}", i ? "," : "", i);
    strbuf_append_c(&b,
                    "],\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[");
    for (int i = 0; i < N; i += 2)
        strbuf_printf(&b, "%s{\"type\":\"function\",\"name\":\"f%d\"}", i ? "," : "", i);
    strbuf_append_c(&b, "]}}");
    if (!read_body(strbuf_str(&b).ptr, &p, &e))
        fail_msg("%s", e.message);
    assert_int_equal(json_array_size(p.tools), N / 2);
    params_fini(&p);
    strbuf_fini(&b);
}

static void test_refused_items(void **state)
{
#define WITH(f)     "\"input\":\"a\"," f
#define ITEM(it)    "\"input\":[" USER("a") "," it "]"
#define A_TOOL_HERE "\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]"
    static const struct body_refusal cases[] = {
        {"\"model\":\"m\"", "input", "input is required."},
        {"\"input\":7", "input", "a string or a list"},
        {"\"input\":[]", "input", "an empty list. Send at least one message"},
        {"\"input\":[{\"type\":\"reasoning\",\"summary\":[]}]", "input",
         "has nothing that the model can read"},
        {ITEM("7"), "input", "input[1] must be an object"},
        {ITEM("{}"), "input", "input[1] is of type \"\""},
        {ITEM("{\"role\":\"tool\",\"content\":\"x\"}"), "input", "input[1].role"},
        {ITEM("{\"role\":\"user\"}"), "input", "input[1].content must be"},
        {ITEM("{\"role\":\"user\",\"content\":[7]}"), "input", "an object with a type"},
        {ITEM("{\"role\":\"user\",\"content\":[{\"type\":\"input_text\"}]}"), "input",
         "must have a text"},
        {ITEM("{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"x\"}]}"),
         "input", "part of type \"input_image\""},
        {ITEM("{\"type\":\"item_reference\",\"id\":\"msg_1\"}"), "input", "it keeps no items"},
        {ITEM("{\"id\":\"msg_1\"}"), "input", "In the client, set store to false"},
        {ITEM("{\"type\":\"compaction\",\"encrypted_content\":\"x\"}"), "input",
         "cannot read what another server has compacted"},
        {ITEM("{\"type\":\"compaction_trigger\"}"), "input", "compacts nothing"},
        {ITEM("{\"type\":\"tool_search_output\",\"tools\":[{\"type\":\"function\"}]}"), "input",
         "put its tools into the field tools"},
        {ITEM("{\"type\":\"additional_tools\",\"tools\":[{\"type\":\"function\"}]}"), "input",
         "put its tools into the field tools"},
        {ITEM("{\"type\":\"file_search_call\",\"results\":[{\"text\":\"a\"}]}"), "input",
         "put its results into a message"},
        {ITEM("{\"type\":\"computer_call_output\",\"call_id\":\"x\"}"), "input", "text only"},
        {ITEM("{\"type\":\"program\",\"code\":\"x\"}"), "input", "runs no code"},
        {ITEM("{\"type\":\"new_thing\"}"), "input", "of type \"new_thing\""},
        {ITEM("{\"type\":\"mcp_call\",\"id\":\"x\"}"), "input", "an id and a name"},
        {ITEM("{\"type\":\"local_shell_call\",\"call_id\":\"x\"}"), "input", "an action"},
        {ITEM("{\"type\":\"custom_tool_call\",\"call_id\":\"x\",\"name\":\"f\"}"), "input",
         "an input, all strings"},
        {ITEM("{\"type\":\"configuration_update\",\"text\":{\"format\":{}}}"), "input",
         "Put text into the request itself"},
        {ITEM("{\"type\":\"function_call\",\"call_id\":\"x\",\"name\":\"f\"}"), "input",
         "arguments, all strings"},
        {ITEM("{\"type\":\"function_call_output\",\"output\":\"x\"}"), "input", "a call_id"},
        {ITEM("{\"type\":\"function_call_output\",\"call_id\":\"x\",\"output\":7}"), "input",
         "input[1].output must be"},
        {ITEM("{\"type\":\"reasoning\",\"content\":[{\"type\":\"x\"}]}"), "input", "type \"x\""},
    };
    check_refusals(&dialect, cases, sizeof cases / sizeof *cases);
}

static void test_refused_fields(void **state)
{
    static const struct body_refusal cases[] = {
        {WITH("\"instructions\":[7]"), "instructions", "must be a string"},
        {WITH("\"previous_response_id\":\"resp_1\""), "previous_response_id",
         "keeps no conversations"},
        {WITH("\"conversation\":\"conv_1\""), "conversation", "keeps no conversations"},
        {WITH("\"background\":true"), "background", "must be false"},
        {WITH("\"prompt\":{\"id\":\"p\"}"), "prompt", "stores no prompts"},
        {WITH("\"truncation\":\"middle\""), "truncation", "must be \"auto\" or \"disabled\""},
        {WITH("\"tools\":[{\"type\":\"web_search\"}],\"tool_choice\":{\"type\":\"web_search\"}"),
         "tool_choice", "of type \"web_search\", but this server runs no tools"},
        {WITH("\"tools\":[{\"type\":\"mcp\",\"server_label\":\"m\"}],\"tool_choice\":\"required\""),
         "tool_choice", "leaves out all tools of the request (mcp)"},
        {WITH("\"tools\":[{\"type\":\"\"}]"), "tools", "must be an object with a type"},
        {WITH("\"tools\":[{\"type\":\"function\",\"name\":\"a__b\"},{\"type\":\"namespace\","
              "\"name\":"
              "\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"b\"}]}]"),
         "tools", "two tools called \"a__b\""},
        {WITH("\"tools\":[{\"type\":\"custom\",\"name\":\"c\",\"format\":{\"type\":\"xml\"}}]"),
         "tools", "of type text or grammar"},
        {WITH("\"tools\":[{\"type\":\"custom\",\"name\":\"c\",\"format\":{\"type\":\"grammar\","
              "\"syntax\":\"ebnf\",\"definition\":\"x\"}}]"),
         "tools", "a syntax (\"lark\" or \"regex\")"},
        {WITH("\"tools\":[{\"type\":\"namespace\",\"name\":\"n\"}]"), "tools", "must be a list"},
        {WITH("\"tools\":[{\"type\":\"function\"}]"), "tools", "must have a name"},
        {WITH("\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":7}]"), "tools",
         "tools[0].parameters must be a JSON schema (an object), got a number"},
        {WITH("\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":\"{}\"}]"), "tools",
         "got a string. Send the schema as an object"},
        {WITH("\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"function\","
              "\"name\":\"f\",\"parameters\":true}]}]"),
         "tools", "tools[0].tools[0].parameters must be a JSON schema (an object), got a boolean"},
        {WITH("\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"tool\","
              "\"name\":\"f\"}]}]"),
         "tools", "tools[0].tools[0] is of type \"tool\""},
        {WITH("\"tools\":[{\"type\":\"functon\",\"name\":\"f\"}]"), "tools",
         "tools[0] is of type \"functon\", which this server does not know"},
        {WITH(A_TOOL_HERE
              ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":["
              "{\"type\":\"functon\"}]}"),
         "tool_choice", "which is not in tools"},
        {WITH("\"tool_choice\":\"required\""), "tool_choice", "the request has no tools"},
        {WITH("\"tool_choice\":{\"type\":\"allowed_tools\"}"), "tool_choice", "a list of tools"},
        {WITH(A_TOOL_HERE
              ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{"
              "\"type\":\"function\",\"name\":\"g\"}]}"),
         "tool_choice", "allows a tool \"g\", which is not in tools"},
        {WITH(A_TOOL_HERE
              ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"any\",\"tools\":[]}"),
         "tool_choice", "must be \"none\""},
        {WITH("\"top_logprobs\":3"), "top_logprobs", "in include"},
        {WITH("\"include\":[\"moon.phase\"]"), "include", "moon.phase"},
        {WITH("\"include\":[7]"), "include", "a list of strings"},
        {WITH("\"text\":{\"verbosity\":\"loud\"}"), "text.verbosity",
         "must be low, medium or high"},
        {WITH("\"text\":{\"format\":{\"type\":\"xml\"}}"), "text.format", "\"xml\""},
        {WITH("\"text\":{\"format\":{\"type\":\"json_schema\"}}"), "text.format", "a schema"},
        {WITH("\"text\":{\"colour\":1}"), "text.colour", "There is no field"},
        {WITH("\"reasoning\":{\"effort\":\"huge\"}"), "reasoning.effort", "must be one of"},
        {WITH("\"reasoning\":{\"summary\":\"long\"}"), "reasoning.summary", "must be one of"},
        {WITH("\"reasoning\":{\"colour\":1}"), "reasoning.colour", "There is no field"},
        {WITH("\"stream_options\":{\"include_usage\":true}"), "stream_options.include_usage",
         "There is no field"},
        {WITH("\"messages\":[]"), "messages", "There is no field `messages`"},
        {WITH("\"max_tokens\":3"), "max_tokens", "There is no field `max_tokens`"},
        {WITH("\"n\":2"), "n", "There is no field `n`"},
    };
    check_refusals(&dialect, cases, sizeof cases / sizeof *cases);
}

/* ---- answers ---- */

#define TAIL(tools, top)                                                                           \
    ",\"instructions\":null,\"max_output_tokens\":90,\"max_tool_calls\":null,\"metadata\":{},"     \
    "\"parallel_tool_calls\":true,\"prompt_cache_key\":null,\"reasoning\":{\"effort\":null,"       \
    "\"summary\":null},\"safety_identifier\":null,\"tool_choice\":\"auto\",\"tools\":" tools       \
    ",\"top_logprobs\":" top ",\"user\":null,\"text\":{\"format\":{\"type\":\"text\"}},"           \
    "\"temperature\":1,\"top_p\":1,\"presence_penalty\":0,\"frequency_penalty\":0,"                \
    "\"background\":false,\"previous_response_id\":null,\"prompt\":null,\"service_tier\":"         \
    "\"default\",\"store\":false,\"truncation\":\"disabled\"}"
#define HEAD(status, error, details)                                                               \
    "{\"id\":\"resp_ID\",\"object\":\"response\",\"created_at\":1700000000,\"status\":\"" status   \
    "\",\"error\":" error ",\"incomplete_details\":" details ",\"model\":\"m\",\"output\":"
#define CUT "{\"reason\":\"max_output_tokens\"}"
#define USAGE(in, out, thought, all)                                                               \
    ",\"usage\":{\"input_tokens\":" in ",\"input_tokens_details\":{\"cached_tokens\":0,"           \
    "\"cache_write_tokens\":0},\"output_tokens\":" out                                             \
    ",\"output_tokens_details\":{\"reasoning_tokens\":" thought "},\"total_tokens\":" all "}"
#define EVENT(n, type, rest)                                                                       \
    "event: " type "\ndata: {\"type\":\"" type "\",\"sequence_number\":" n "," rest "}\n\n"
#define AT(id, i) "\"item_id\":\"" id "_ID_" i "\",\"output_index\":" i ","

#define TEXT_PART(text)                                                                            \
    "{\"type\":\"output_text\",\"text\":\"" text "\",\"annotations\":[],\"logprobs\":[]}"
#define THOUGHT_PART(text) "{\"type\":\"reasoning_text\",\"text\":\"" text "\"}"
#define MESSAGE(i, status, content)                                                                \
    "{\"id\":\"msg_ID_" i "\",\"type\":\"message\",\"status\":\"" status                           \
    "\",\"role\":\"assistant\",\"content\":[" content "]}"
#define THOUGHT(i, status, content)                                                                \
    "{\"id\":\"rs_ID_" i "\",\"type\":\"reasoning\",\"status\":\"" status                          \
    "\",\"summary\":[],\"encrypted_content\":null,\"content\":[" content "]}"
#define F_CALL(i, status, arguments)                                                               \
    "{\"id\":\"fc_ID_" i "\",\"type\":\"function_call\",\"status\":\"" status                      \
    "\",\"call_id\":\"call_ID\",\"name\":\"f\",\"arguments\":\"" arguments "\"}"

#define A_TOOL      "[{\"type\":\"function\",\"name\":\"f\"}]"
#define ASK(more)   "{\"input\":\"hi\",\"max_output_tokens\":90" more "}"
#define STREAM      ",\"stream\":true"
#define WITH_A_TOOL ",\"tools\":" A_TOOL

/* Compares the answer with `want`. A run of 32 hexadecimal digits is a random id, and is
 * compared as ID. */
static void assert_answer(const char *want)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    for (const char *at = strbuf_str(&w.client.body).ptr; *at;) {
        size_t n = strspn(at, "0123456789abcdef");
        if (n == 32)
            strbuf_append_c(&b, "ID");
        else
            strbuf_append(&b, at, n ? n : 1);
        at += n ? n : 1;
    }
    assert_string_equal(strbuf_str(&b).ptr, want);
    strbuf_fini(&b);
}

static void ask(const char *body)
{
    w.client.status = 0;
    w.client.begun = w.client.ended = false;
    strbuf_reset(&w.client.body);
    post_as(&dialect_responses, body);
}

/* Reasoning, text and a call are three items. Each has an event at its start, events with its
 * pieces and an event with the whole item. */
static void test_stream(void **state)
{
    ask(ASK(STREAM WITH_A_TOOL));
    /* a prompt of 3 ids shows that the template received the tool */
    assert_int_equal(w.submits[0].n_prompt, 3);
    tokens(0, 0, "<think>w", FINISH_NONE);
    tokens(0, 8, "hy</think>so", FINISH_NONE);
    tokens(0, 20, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\"", FINISH_NONE);
    tokens(0, 59, ":1}}</tool_call>", FINISH_STOP);
#define DONE_THOUGHT THOUGHT("0", "completed", THOUGHT_PART("why"))
#define DONE_TEXT    MESSAGE("1", "completed", TEXT_PART("so"))
#define DONE_CALL    F_CALL("2", "completed", "{\\\"a\\\":1}")
#define BEGUN                                                                                      \
    "\"response\":" HEAD("in_progress", "null", "null") "[],\"usage\":null" TAIL(A_TOOL, "0")
    assert_answer(
        EVENT("0", "response.created", BEGUN) EVENT("1", "response.in_progress", BEGUN) EVENT(
            "2", "response.output_item.added",
            "\"output_index\":0,\"item\":" THOUGHT(
                "0", "in_progress",
                "")) EVENT("3", "response.content_part.added",
                           AT("rs", "0") "\"content_index\":0,\"part\":" THOUGHT_PART(
                               "")) EVENT("4", "response.reasoning_text.delta",
                                          AT("rs", "0") "\"content_index\":0,\"delta\":\"w\"")
            EVENT("5", "response.reasoning_text.delta",
                  AT("rs", "0") "\"content_index\":0,\"delta\":\"hy\"")
                EVENT("6", "response.reasoning_text.done",
                      AT("rs", "0") "\"content_index\":0,\"text\":\"why\"")
                    EVENT("7", "response.content_part.done",
                          AT("rs", "0") "\"content_index\":0,\"part\":" THOUGHT_PART(
                              "why")) EVENT("8", "response.output_item.done",
                                            "\"output_index\":0,\"item\":" DONE_THOUGHT)
                        EVENT("9", "response.output_item.added",
                              "\"output_index\":1,\"item\":" MESSAGE(
                                  "1", "in_progress",
                                  "")) EVENT("10", "response.content_part.added",
                                             AT("msg",
                                                "1") "\"content_index\":0,\"part\":" TEXT_PART(""))
                            EVENT("11", "response.output_text.delta",
                                  AT("msg",
                                     "1") "\"content_index\":0,\"delta\":\"so\",\"logprobs\":[]")
                                EVENT("12", "response.output_text.done",
                                      AT("msg",
                                         "1") "\"content_index\":0,\"text\":\"so\",\"logprobs\":[]")
                                    EVENT("13", "response.content_part.done",
                                          AT("msg", "1") "\"content_index\":0,\"part\":" TEXT_PART(
                                              "so")) EVENT("14", "response.output_item.done",
                                                           "\"output_index\":1,\"item\":" DONE_TEXT)
                                        EVENT(
                                            "15", "response.output_item.added",
                                            "\"output_index\":2,\"item\":" F_CALL(
                                                "2", "in_progress",
                                                "")) EVENT("16",
                                                           "response.function_call_arguments.delta",
                                                           AT("fc", "2") "\"delta\":\"{\\\"a\\\"\"")
                                            EVENT("17", "response.function_call_arguments.delta",
                                                  AT("fc", "2") "\"delta\":\":1}\"")
                                                EVENT("18", "response.function_call_arguments.done",
                                                      AT("fc", "2") "\"call_id\":\"call_ID\","
                                                                    "\"name\":\"f\",\"arguments\":"
                                                                    "\"{\\\"a\\\":1}\"")
                                                    EVENT("19", "response.output_item.done",
                                                          "\"output_index\":2,\"item\":" DONE_CALL)
                                                        EVENT("20", "response.completed",
                                                              "\"response\":" HEAD(
                                                                  "completed", "null",
                                                                  "null") "[" DONE_THOUGHT
                                                                          "," DONE_TEXT
                                                                          "," DONE_CALL "]" USAGE(
                                                                              "3", "75", "3", "78")
                                                                              TAIL(A_TOOL, "0")));
}

static void test_whole(void **state)
{
    static const struct {
        const char *body, *text;
        enum finish_reason finish;
        const char *want;
    } cases[] = {
        {ASK(""), "ab$", FINISH_STOP, /* the last token is EOS and has no text */
         HEAD("completed", "null", "null") "[" MESSAGE("0", "completed", TEXT_PART("ab")) "]" USAGE(
             "2", "3", "0", "5") TAIL("[]", "0")},
        {ASK(""), "<think>x</think>yz", FINISH_LENGTH,
         HEAD("incomplete", "null", CUT) "[" THOUGHT(
             "0", "completed", THOUGHT_PART("x")) "," MESSAGE("1", "incomplete",
                                                              TEXT_PART("yz")) "]" USAGE("2", "18",
                                                                                         "1", "20")
             TAIL("[]", "0")},
        {ASK(""), "<think>xyz", FINISH_LENGTH,
         HEAD("incomplete", "null", CUT) "[" THOUGHT(
             "0", "incomplete", THOUGHT_PART("xyz")) "]" USAGE("2", "10", "3", "12")
             TAIL("[]", "0")},
        {ASK(WITH_A_TOOL), "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", FINISH_LENGTH,
         HEAD("incomplete", "null", CUT) "[" F_CALL("0", "incomplete", "{\\\"a\\\":") "]" USAGE(
             "3", "40", "0", "43") TAIL(A_TOOL, "0")},
        {ASK(""), "$", FINISH_STOP, /* the first token is EOS */
         HEAD("completed", "null", "null") "[]" USAGE("2", "1", "0", "3") TAIL("[]", "0")},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ask(cases[i].body);
        tokens(i, 0, cases[i].text, cases[i].finish);
        assert_answer(cases[i].want);
    }
}

/* Sends tokens with rows of log-probabilities that hold the chosen token only. */
static void tokens_with_logprobs(uint32_t i, uint32_t start, const char *text,
                                 enum finish_reason finish)
{
    uint32_t ids[16], n = 0;
    float values[16];
    for (; text[n]; n++) {
        ids[n] = (uint8_t)text[n];
        values[n] = -(float)(start + n + 1);
    }
    struct logprob_row rows[16];
    for (uint32_t k = 0; k < n; k++)
        rows[k] = (struct logprob_row){.ids = {&ids[k], 1}, .values = {&values[k], 1}};
    struct tokens_item t = {.id = w.submits[i].id,
                            .attempt = 1,
                            .start = start,
                            .ids = {ids, n},
                            .logprobs = rows,
                            .n_logprobs = n,
                            .finish = finish,
                            .stop_id = UINT32_MAX};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
    serving_sweep(&w.s);
}

static void assert_has(const char *want)
{
    if (!strstr(strbuf_str(&w.client.body).ptr, want))
        fail_msg("%s lacks %s", strbuf_str(&w.client.body).ptr, want);
}

/* A stream has each token's log-probability once with its piece and once in the last event. A
 * whole answer has it once. */
static void test_logprobs(void **state)
{
#define ROW_A   "{\"token\":\"a\",\"logprob\":-1,\"bytes\":[97],\"top_logprobs\":[]}"
#define ROW_B   "{\"token\":\"b\",\"logprob\":-2,\"bytes\":[98],\"top_logprobs\":[]}"
#define ROW_C   "{\"token\":\"c\",\"logprob\":-3,\"bytes\":[99],\"top_logprobs\":[]}"
#define INCLUDE ",\"include\":[\"message.output_text.logprobs\"]"
    ask(ASK(STREAM INCLUDE));
    assert_int_equal(w.submits[0].sampling.n_logprobs, 0);
    tokens_with_logprobs(0, 0, "ab", FINISH_NONE);
    tokens_with_logprobs(0, 2, "c", FINISH_LENGTH);
    assert_has("\"delta\":\"ab\",\"logprobs\":[" ROW_A "," ROW_B "]}");
    assert_has("\"delta\":\"c\",\"logprobs\":[" ROW_C "]}");
    assert_has("\"text\":\"abc\",\"logprobs\":[" ROW_A "," ROW_B "," ROW_C "]}");
    assert_has("\"text\":\"abc\",\"annotations\":[],\"logprobs\":[" ROW_A "," ROW_B "," ROW_C "]}");
    ask(ASK(INCLUDE));
    tokens_with_logprobs(1, 0, "abc", FINISH_LENGTH);
    assert_has("\"text\":\"abc\",\"annotations\":[],\"logprobs\":[" ROW_A "," ROW_B "," ROW_C "]}");
}

/* A custom tool's call has its input as text, and a namespace's function has its own name, in
 * streams and in whole answers. */
static void test_calls_in_the_client_s_words(void **state)
{
#define CUSTOM ",\"tools\":[{\"type\":\"custom\",\"name\":\"c\"}]"
#define SPACE                                                                                      \
    ",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"function\","        \
    "\"name\":"                                                                                    \
    "\"f\"}]}]"
#define CALL_C       "<tool_call>{\"name\":\"c\",\"arguments\":{\"input\":\"1\\n2\"}}</tool_call>"
#define C_CALL_BEGUN "{\"id\":\"ctc_"
    ask(ASK(STREAM CUSTOM));
    tokens(0, 0, CALL_C, FINISH_NONE);
    tokens(0, strlen(CALL_C), "$", FINISH_STOP);
    assert_has("\"item\":" C_CALL_BEGUN);
    static const char *const wanted[] = {
        "event: response.custom_tool_call_input.delta\n", "\"delta\":\"1\\n2\"",
        "event: response.custom_tool_call_input.done\n",
        "\"input\":\"1\\n2\"}\n\nevent: response.output_item.done", "event: response.completed\n"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        assert_has(wanted[i]);
    ask(ASK(CUSTOM));
    tokens(1, 0, CALL_C, FINISH_STOP);
    assert_has("\"type\":\"custom_tool_call\",\"status\":\"completed\"");
    assert_has("\"name\":\"c\",\"input\":\"1\\n2\"}]");
    ask(ASK(SPACE));
    tokens(2, 0, "<tool_call>{\"name\":\"n__f\",\"arguments\":{}}</tool_call>", FINISH_STOP);
    assert_has("\"name\":\"f\",\"namespace\":\"n\",\"arguments\":\"{}\"}]");
}

static void test_errors(void **state)
{
    ask("{\"input\":[" USER("a") "],\"model\":\"nobody\"}");
    assert_int_equal(w.client.status, 404);
    ask("{}");
    assert_answer("{\"error\":{\"message\":\"input is required.\",\"type\":\"BadRequestError\","
                  "\"param\":\"input\",\"code\":400}}");
    ask(ASK(STREAM));
    tokens(0, 0, "a", FINISH_NONE);
    strbuf_reset(&w.client.body);
    struct tokens_item t = {.id = w.submits[0].id,
                            .attempt = 1,
                            .start = 1,
                            .finish = FINISH_ERROR,
                            .status = STATUS_INTERNAL,
                            .text = STR("lost")};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
    assert_answer(
        EVENT("5", "error", "\"code\":\"server_error\",\"message\":\"lost\",\"param\":null")
            EVENT("6", "response.failed",
                  "\"response\":" HEAD("failed", "{\"code\":\"server_error\",\"message\":\"lost\"}",
                                       "null") "[" MESSAGE("0", "incomplete",
                                                           TEXT_PART("a")) "],"
                                                                           "\"usage\":null" TAIL(
                                                                               "[]", "0")));
}

/* Joining many system messages must take time linear in their text. An earlier version copied
 * all text before each item. */
static void test_many_system_messages_are_one(void **state)
{
    enum { MANY = 40000 };
    struct strbuf b;
    struct params p;
    struct api_error e;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "{\"instructions\":\"begin\",\"input\":[");
    for (int i = 0; i < MANY; i++)
        strbuf_append_c(&b, "{\"role\":\"system\",\"content\":"
                            "\"01234567890123456789012345678901234567890123456789\"},");
    strbuf_append_c(&b, USER("a") ",{\"role\":\"system\",\"content\":\"late\"}]}");
    assert_true(body_read(&dialect, strbuf_str(&b).ptr, &p, &e));
    assert_int_equal(json_array_size(p.messages), 3);
    assert_int_equal(json_string_length(json_object_get(json_array_get(p.messages, 0), "content")),
                     5 + MANY * 52);
    params_fini(&p);
    strbuf_fini(&b);
}

/* `truncation` in an answer is always a word, even when the request has null. */
static void test_truncation(void **state)
{
    static const struct {
        const char *said, *answered;
        int64_t kept;
    } cases[] = {
        {"\"auto\"", "\"truncation\":\"auto\"", -1},
        {"\"disabled\"", "\"truncation\":\"disabled\"", PARAMS_NO_TRUNCATION},
        {"null", "\"truncation\":\"disabled\"", PARAMS_NO_TRUNCATION},
    };
    struct text_template *tmpl = NULL;
    char err[TEXT_ERR_MAX], body[64];
    (void)state;
    assert_int_equal(text_template_new("x", 1, &tmpl, err), TEXT_OK);
    const struct prepare_model m = {.chat_template = tmpl, .policy = {.max_logprobs = 20}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct prepared out = {0};
        snprintf(body, sizeof body, "{\"input\":\"a\",\"truncation\":%s}", cases[i].said);
        assert_true(responses_read(&m, params_parse_json(str_from(body), &out.error), &out));
        assert_int_equal(out.params.truncate_prompt_tokens, cases[i].kept);
        assert_non_null(strstr(out.params.asked.ptr, cases[i].answered));
        prompt_list_fini(&out.prompts);
        params_fini(&out.params);
    }
    text_template_free(tmpl);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items),
        cmocka_unit_test(test_items_of_other_tools),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_many_tools_are_chosen_from),
        cmocka_unit_test(test_many_system_messages_are_one),
        cmocka_unit_test(test_refused_items),
        cmocka_unit_test(test_refused_fields),
        TEST(test_calls_in_the_client_s_words),
        TEST(test_stream),
        TEST(test_whole),
        TEST(test_logprobs),
        TEST(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
