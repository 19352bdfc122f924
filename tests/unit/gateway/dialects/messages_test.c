/* Tests the bodies of Anthropic's messages API. The dialect reads a body into `struct params`.
 * The tests check the messages that the chat template gets, the tools, and the refusals with
 * their error fields. Invariant: the cost of reading a body is linear in its length. */
#include "gateway/dialects/messages.h"
#include "gateway/tools/kinds.h"
#include "gateway/tools/set.h"

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
#include "tests/unit/gateway/dialects/body_cases.h"

static const struct body_dialect dialect = {API_MESSAGES, messages_for_template};

static bool read_body(const char *body, struct params *p, struct api_error *e)
{
    return body_read(&dialect, body, p, e);
}

static void test_messages(void **state)
{
    static const struct body_case cases[] = {
        {"\"messages\":[" USER("hi") "]", "[" USER("hi") "]", false},
        {"\"system\":\"be kind\",\"messages\":[" USER("hi") "]",
         "[{\"role\": \"system\", \"content\": \"be kind\"}, " USER("hi") "]", false},
        {"\"system\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{}},{\"type\":\"text\","
         "\"text\":\"b\"}],\"messages\":[" USER("hi") "]",
         "[{\"role\": \"system\", \"content\": \"a\\nb\"}, " USER("hi") "]", false},
        /* a system message stays at its place */
        {"\"system\":\"a\",\"messages\":[{\"role\":\"system\",\"content\":\"b\"}," USER(
             "c") ","
                  "{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"d\"}]}]",
         "[{\"role\": \"system\", \"content\": \"a\\nb\"}, " USER(
             "c") ", "
                  "{\"role\": \"system\", \"content\": \"d\"}]",
         false},
        /* neighbours of one role are one turn; blocks become lines */
        {"\"messages\":[" USER("a") ",{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
                                    "\"b\"},{\"type\":\"text\",\"text\":\"c\"}]}]",
         "[" USER("a\\nb\\nc") "]", false},
        {"\"messages\":[" USER("a") "," MODEL("b") "," USER("c") "," MODEL("d") "]",
         "[" USER("a") ", " MODEL("b") ", " USER("c") ", " MODEL("d") "]", true},
        /* the body has a call, its result, and text beside the result */
        {"\"messages\":[" USER(
             "a") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\","
                  "\"signature\":\"\"},{\"type\":\"redacted_thinking\",\"data\":\"\"},{\"type\":"
                  "\"thinking\",\"thinking\":\"u\"},{\"type\":"
                  "\"text\",\"text\":\"b\"},{\"type\":\"tool_use\",\"id\":\"x\",\"name\":\"f\","
                  "\"input\":{\"k\":1}}]},{\"role\":\"user\",\"content\":[{\"type\":"
                  "\"tool_result\",\"tool_use_id\":\"x\",\"content\":[{\"type\":\"text\",\"text\":"
                  "\"r\"}]},{\"type\":\"text\",\"text\":\"c\"}]}]",
         "[" USER("a") ", {\"role\": \"assistant\", \"content\": \"b\", \"reasoning\": \"t\\nu\", "
                       "\"tool_calls\": [{\"id\": \"x\", \"type\": \"function\", \"function\": "
                       "{\"name\": \"f\", \"arguments\": {\"k\": 1}}}]}, {\"role\": \"tool\", "
                       "\"tool_call_id\": \"x\", \"content\": \"r\"}, " USER("c") "]",
         false},
        /* the results of another server's tools are left out */
        {"\"messages\":[" USER(
             "a") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"server_tool_use\",\"id\":"
                  "\"s\","
                  "\"name\":\"web_search\",\"input\":{\"query\":\"q\"}},{\"type\":"
                  "\"web_search_tool_result\",\"tool_use_id\":\"s\",\"content\":[{\"type\":"
                  "\"web_search_result\",\"url\":\"u\"}]},{\"type\":\"mcp_tool_use\",\"id\":\"m\"},"
                  "{\"type\":\"mcp_tool_result\",\"tool_use_id\":\"m\"},{\"type\":\"text\","
                  "\"text\":"
                  "\"b\"}]}," USER("c") "]",
         "[" USER("a") ", " MODEL("b") ", " USER("c") "]", false},
        {"\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"x\","
         "\"name\":\"f\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
         "\"tool_use_id\":\"x\"}]}]",
         "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"x\", \"type\": "
         "\"function\", \"function\": {\"name\": \"f\", \"arguments\": {}}}]}, {\"role\": "
         "\"tool\", "
         "\"tool_call_id\": \"x\", \"content\": \"\"}]",
         false},
    };
    check_bodies(&dialect, "\"max_tokens\":5,", cases, sizeof cases / sizeof *cases);
}

static void test_fields(void **state)
{
    struct params p;
    struct api_error e;
    assert_true(
        read_body("{\"max_tokens\":5,\"stop_sequences\":[\"x\",\"y\"],\"top_k\":3,"
                  "\"temperature\":0.5,\"metadata\":{\"user_id\":\"u\"},\"messages\":[" USER(
                      "a") "],\"tools\":[{\"name\":\"f\",\"description\":\"d\","
                           "\"input_schema\":{\"type\":\"object\"}}],\"tool_choice\":{"
                           "\"type\":\"auto\",\"disable_parallel_tool_use\":true},"
                           "\"output_config\":{\"effort\":\"low\",\"format\":{\"type\":"
                           "\"json_schema\",\"schema\":{\"type\":\"object\"}}},"
                           "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}}",
                  &p, &e));
    char *tools = json_dumps(p.tools, 0);
    assert_string_equal(tools, "[{\"type\": \"function\", \"function\": {\"name\": \"f\", "
                               "\"description\": \"d\", \"parameters\": {\"type\": \"object\"}}}]");
    free(tools);
    assert_int_equal(p.n_stops, 2);
    assert_int_equal(p.sampling.top_k, 3);
    assert_int_equal(p.sampling.max_tokens, 5);
    assert_int_equal(p.tool_choice, TOOL_CHOICE_AUTO);
    assert_false(p.parallel_tool_calls);
    assert_true(p.include_reasoning);
    assert_true(str_eq_c(p.reasoning_effort, "low"));
    assert_int_equal(p.sampling.grammar_kind, GRAMMAR_JSON_SCHEMA);
    assert_true(str_eq_c(p.sampling.grammar, "{\"type\":\"object\"}"));
    params_fini(&p);
    assert_true(
        read_body("{\"max_tokens\":5,\"messages\":[" USER("a") "],\"thinking\":{\"type\":"
                                                               "\"disabled\"},\"tools\":[]}",
                  &p, &e));
    assert_false(p.include_reasoning);
    assert_true(str_eq_c(p.reasoning_effort, "none"));
    assert_null(p.tools);
    params_fini(&p);
    assert_true(
        read_body("{\"max_tokens\":5,\"messages\":[" USER(
                      "a") "],\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"}}",
                  &p, &e));
    assert_false(p.include_reasoning);
    assert_int_equal(p.reasoning_effort.len, 0);
    params_fini(&p);
}

static void test_refusals(void **state)
{
#define BLOCK(b) "\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":[" b "]}]"
#define WITH(f)  "\"max_tokens\":5,\"messages\":[" USER("a") "]," f
    static const struct body_refusal cases[] = {
        {"\"max_tokens\":5", "messages", "messages is required."},
        {"\"messages\":[" USER("a") "]", "max_tokens", "max_tokens is required."},
        {"\"max_tokens\":5,\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]", "messages",
         "role user, assistant or system"},
        {"\"max_tokens\":5,\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":"
         "\"tool_addition\",\"tool\":{\"type\":\"tool_definition\",\"definition\":{}}}]}]",
         "messages", "must refer to a tool in the field tools"},
        {BLOCK("{\"type\":\"tool_addition\",\"tool\":{\"type\":\"tool_reference\"}}"), "messages",
         "block of type \"tool_addition\""},
        {"\"max_tokens\":5,\"messages\":[" USER("a") ",7]", "messages", "messages[1] must be"},
        {"\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":7}]", "messages",
         "a string or a list of blocks"},
        {BLOCK("{\"type\":\"image\",\"source\":{}}"), "messages", "block of type \"image\""},
        {BLOCK("7"), "messages", "an object with a type"},
        {BLOCK("{\"type\":\"server_tool_use\"}"), "messages", "block of type \"server_tool_use\""},
        {WITH("\"thinking\":18446744073709551616"), "thinking", "thinking must be"},
        {BLOCK("{\"type\":\"text\"}"), "messages", "must have a text"},
        {BLOCK("{\"type\":\"tool_result\"}"), "messages", "must have a tool_use_id"},
        {BLOCK("{\"type\":\"tool_result\",\"tool_use_id\":\"x\",\"content\":[{\"type\":\"image\"}]"
               "}"),
         "messages", "block of type \"image\""},
        {BLOCK("{\"type\":\"tool_result\",\"tool_use_id\":\"x\",\"content\":7}"), "messages",
         "an object with a type"},
        {"\"max_tokens\":5,\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":"
         "\"tool_use\",\"id\":\"x\",\"name\":\"f\"}]}]",
         "messages", "an input (an object)"},
        {WITH("\"system\":7"), "system", "a list of text blocks"},
        {WITH("\"system\":[{\"type\":\"image\"}]"), "system", "a list of text blocks"},
        {WITH("\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"w\"}],\"tool_choice\":{"
              "\"type\":\"tool\",\"name\":\"w\"}"),
         "tool_choice", "is of type \"web_search_20250305\", which this server does not run"},
        {WITH("\"tools\":[{\"type\":\"web_fetch_20250910\",\"name\":\"w\"}],\"tool_choice\":{"
              "\"type\":\"any\"}"),
         "tool_choice", "leaves out all tools of the request (web_fetch_20250910)"},
        {WITH("\"tools\":[{\"type\":\"computer_20250124\",\"name\":\"w\"}],\"tool_choice\":{"
              "\"type\":\"tool\",\"name\":\"w\"}"),
         "tool_choice", "\"computer_20250124\", whose schema this server does not know"},
        {WITH("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"), "tools",
         "tools[0] is of type \"function\", which this server does not know"},
        {WITH("\"tools\":[{\"type\":\"bash\\r\\n\"}]"), "tools", "does not know"},
        {WITH("\"tools\":[{\"type\":\"bash_2025x\"}]"), "tools", "does not know"},
        {WITH("\"tools\":[{\"type\":\"web_search_\"}]"), "tools", "does not know"},
        {WITH("\"tools\":[{\"name\":\"f\",\"input_schema\":\"{}\"}]"), "tools",
         "tools[0].input_schema must be a JSON schema (an object), got a string."},
        {WITH("\"tools\":[{\"name\":\"f\",\"input_schema\":[]}]"), "tools", "got a list"},
        {WITH("\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],\"tool_choice\":{\"type\":\"tool\","
              "\"name\":\"g\"}"),
         "tool_choice", "names the tool \"g\", which is not in tools"},
        {WITH("\"tools\":[{\"type\":7,\"name\":\"w\",\"input_schema\":{}}]"), "tools",
         "type must be a string"},
        {WITH("\"tools\":[{\"name\":\"w\"}]"), "tools", "input_schema"},
        {WITH("\"tools\":[{\"input_schema\":{}}]"), "tools", "must have a name"},
        {WITH("\"tool_choice\":{\"type\":\"tool\"}"), "tool_choice", "the type tool and a name"},
        {WITH("\"tool_choice\":{\"type\":\"any\"}"), "tool_choice", "the request has no tools"},
        {WITH("\"tool_choice\":{\"type\":\"none\",\"x\":1}"), "tool_choice.x", "no field"},
        {WITH("\"thinking\":{\"type\":\"deep\"}"), "thinking", "must be of type"},
        {WITH("\"thinking\":{\"type\":\"enabled\",\"x\":1}"), "thinking.x", "no field"},
        {WITH("\"thinking\":{\"type\":\"enabled\",\"display\":\"half\"}"), "thinking.display",
         "summarized or omitted"},
        {WITH("\"output_config\":{\"effort\":\"huge\"}"), "output_config", "must be one of"},
        {WITH("\"output_config\":{\"format\":{}}"), "output_config", "of type json_schema"},
        {WITH("\"output_config\":{\"format\":{\"type\":\"json_schema\"}}"), "output_config.format",
         "a schema"},
        {WITH("\"output_config\":{\"shape\":{}}"), "output_config", "output_config.shape"},
        {WITH("\"mcp_servers\":7"), "mcp_servers", "must be a list"},
        {WITH("\"stop\":\"x\""), "stop", "There is no field `stop`"},
        {WITH("\"stop_sequences\":[\"\"]"), "stop_sequences", "empty"},
    };
    check_refusals(&dialect, cases, sizeof cases / sizeof *cases);
}

static void test_what_a_template_makes_of_a_late_system_message(void **state)
{
    static const struct {
        const char *source, *shown, *refused;
    } cases[] = {
        {"{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}",
         "<user>a<system>be kind<user>b<assistant>c<user>d", NULL},
        {"{% for m in messages %}{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif "
         "%}"
         "{% endfor %}",
         "<user>a\n\n be kind \n\nb<assistant>c<user>d", NULL},
        {"{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('users only') }}"
         "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}",
         "<user>a\n\n be kind \n\nb<assistant>c<user>d", NULL},
        {"{{ raise_exception('nobody') }}", NULL, "nobody"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text_template *tmpl = NULL;
        char err[TEXT_ERR_MAX];
        assert_int_equal(text_template_new(cases[i].source, strlen(cases[i].source), &tmpl, err),
                         TEXT_OK);
        const struct prepare_model m = {.chat_template = tmpl, .policy = {.max_logprobs = 20}};
        struct prepared out = {0};
        struct api_error e = {0};
        const char *body = "{\"max_tokens\":5,\"messages\":[" USER(
            "a") ",{\"role\":\"system\",\"content\":\" be "
                 "kind \"}," USER("b") "," MODEL("c") "," USER("d") "]}";
        bool ok = messages_read(&m, params_parse_json(str_from(body), &e), &out);
        assert_int_equal(ok, cases[i].shown != NULL);
        if (ok)
            assert_string_equal(out.prompts.items[0].text.ptr, cases[i].shown);
        else if (!strstr(out.error.message, cases[i].refused))
            fail_msg("%s: %s", cases[i].source, out.error.message);
        prompt_list_fini(&out.prompts);
        params_fini(&out.params);
        text_template_free(tmpl);
    }
}

/* Two requests of Claude Code that differ only in the billing header give one prompt. */
static void test_bookkeeping_is_left_out(void **state)
{
    static const char *const payers[] = {
        "{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: v=1; n=7\"},",
        "{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: v=2; n=9\"},", ""};
    char *first = NULL;
    for (size_t i = 0; i < 3; i++) {
        struct params p;
        struct api_error e;
        char body[512];
        snprintf(body, sizeof body,
                 "{\"max_tokens\":5,\"system\":[%s{\"type\":\"text\",\"text\":\"be kind\"}],"
                 "\"messages\":[" USER("a") "]}",
                 payers[i]);
        assert_true(read_body(body, &p, &e));
        char *messages = json_dumps(p.messages, 0);
        if (!first)
            first = messages;
        else {
            assert_string_equal(messages, first);
            free(messages);
        }
        params_fini(&p);
    }
    assert_string_equal(first, "[{\"role\": \"system\", \"content\": \"be kind\"}, " USER("a") "]");
    free(first);
}

#define SYSTEM(members) "{\"role\":\"system\"," members "}"

/* A system message can hold for one turn and can change the effort within the conversation. The
 * result of a search for tools is read as text. */
static void test_system_messages_of_a_turn(void **state)
{
    static const struct body_case cases[] = {
        {"\"messages\":[" USER("a") "," SYSTEM("\"content\":\"b\",\"clear_at\":\"next_user_"
                                               "message\"") "," MODEL("c") "," USER("d") "]",
         "[" USER("a") ", " MODEL("c") ", " USER("d") "]", false},
        {"\"messages\":[" USER("a") "," SYSTEM(
             "\"content\":\"b\",\"clear_at\":\"next_user_message\"") "]",
         "[" USER("a") ", {\"role\": \"system\", \"content\": \"b\"}]", false},
        {"\"messages\":[" USER("a") "," SYSTEM("\"output_config\":{\"effort\":\"low\"}") "]",
         "[" USER("a") "]", false},
        {"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":"
         "\"x\",\"content\":[{\"type\":\"tool_reference\",\"tool_name\":\"f\"},{\"type\":"
         "\"tool_reference\",\"tool_name\":\"g\"}]}]}]",
         "[{\"role\": \"tool\", \"tool_call_id\": \"x\", \"content\": \"Tool: f\\nTool: g\"}]",
         false},
    };
    struct params p;
    struct api_error e;
    check_bodies(&dialect, "\"max_tokens\":5,", cases, sizeof cases / sizeof *cases);
    assert_true(
        read_body("{\"max_tokens\":5,\"output_config\":{\"effort\":\"high\"},\"messages\":[" USER(
                      "a") "," SYSTEM("\"output_config\":{\"effort\":\"low\"}") "]}",
                  &p, &e));
    assert_true(str_eq_c(p.reasoning_effort, "low"));
    params_fini(&p);
    assert_true(
        read_body("{\"max_tokens\":5,\"thinking\":{\"type\":\"disabled\"},\"messages\":[" USER(
                      "a") "," SYSTEM("\"output_config\":{\"effort\":\"low\"}") "]}",
                  &p, &e));
    assert_true(str_eq_c(p.reasoning_effort, "none"));
    params_fini(&p);
}

static void test_tools_of_a_conversation(void **state)
{
#define TWO_TOOLS                                                                                  \
    "\"tools\":[{\"name\":\"f\",\"input_schema\":{}},{\"name\":\"g\",\"input_schema\":{}}]"
#define CHANGE(what, name)                                                                         \
    "{\"role\":\"system\",\"content\":[{\"type\":\"tool_" what "\",\"tool\":{\"type\":"            \
    "\"tool_reference\",\"name\":\"" name "\"}}]}"
    static const struct {
        const char *changes;
        size_t n;
        enum tool_choice choice;
    } cases[] = {
        {CHANGE("addition", "f"), 2, TOOL_CHOICE_AUTO},
        {CHANGE("removal", "f"), 1, TOOL_CHOICE_AUTO},
        {CHANGE("removal", "f") "," CHANGE("addition", "f"), 2, TOOL_CHOICE_AUTO},
        {CHANGE("removal", "f") "," CHANGE("removal", "g"), 0, TOOL_CHOICE_NONE},
        {CHANGE("removal", "nobody"), 2, TOOL_CHOICE_AUTO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct params p;
        struct api_error e;
        struct strbuf b;
        strbuf_init(&b, 0);
        strbuf_printf(&b, "{\"max_tokens\":5,\"messages\":[" USER("a") ",%s]," TWO_TOOLS "}",
                      cases[i].changes);
        assert_true(read_body(strbuf_str(&b).ptr, &p, &e));
        assert_int_equal(json_array_size(p.tools), cases[i].n);
        assert_int_equal(p.tool_choice, cases[i].choice);
        assert_int_equal(json_array_size(p.messages), 1); /* a removed block leaves no text */
        params_fini(&p);
        strbuf_fini(&b);
    }
}

/* The log and a response header name each type once. */
static void test_left_out_types_are_told(void **state)
{
    struct params p;
    struct api_error e;
    struct strbuf b;
    strbuf_init(&b, 0);
    assert_true(read_body("{\"max_tokens\":5,\"messages\":[" USER(
                              "a") "],\"mcp_servers\":[{}],\"tools\":["
                                   "{\"type\":\"web_search_20250305\",\"name\":\"w\"},"
                                   "{\"type\":\"web_search_20250305\"},"
                                   "{\"type\":\"computer_20250124\",\"name\":\"computer\"},"
                                   "{\"type\":\"mcp_toolset\"}]}",
                          &p, &e));
    tool_set_left_out(&p, &b);
    assert_true(str_eq_c(strbuf_str(&b), "web_search_20250305,computer_20250124,mcp_toolset,mcp"));
    assert_null(p.tools);
    assert_int_equal(p.tool_choice, TOOL_CHOICE_NONE);
    params_fini(&p);
    strbuf_fini(&b);
}

/* A tool's type is a known word, alone or followed by a date. */
static void test_kinds_of_types(void **state)
{
    static const char *const
        server[] = {"web_search",
                    "web_search_2025_08_26",
                    "web_search_preview_2025_03_11",
                    "web_search_20270101",
                    "mcp",
                    "mcp_toolset",
                    "code_execution_20250825",
                    "tool_search_tool_regex_20251119",
                    "tool_search_tool_bm25"},
        *const client[] = {"bash_20250124", "bash_20270101", "computer_use_preview",
                           "local_shell",   "apply_patch",   "text_editor_20250728"},
        *const unknown[] = {
            "",    "function",   "functon",       "web_searchs", "web_search_",   "web_search_x",
            "web", "Web_search", "bash-20250124", "mcp ",        "local_shell_x", "_20250124"};
    for (size_t i = 0; i < sizeof server / sizeof *server; i++)
        assert_int_equal(tool_kind_of(server[i]), TOOL_KIND_SERVER);
    for (size_t i = 0; i < sizeof client / sizeof *client; i++)
        assert_int_equal(tool_kind_of(client[i]), TOOL_KIND_CLIENT);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_int_equal(tool_kind_of(unknown[i]), TOOL_KIND_UNKNOWN);
    assert_null(tool_kind_function("bash_20270101")); /* a schema with a later date is unknown */
}

/* A tool of a fixed type, such as Anthropic's bash, becomes a function with the known schema. */
static void test_typed_tools_of_clients(void **state)
{
    static const struct {
        /* `members`: expected members of the tool's parameters, in order */
        const char *tool, *name, *members;
    } rows[] = {
        {"{\"type\":\"bash_20250124\",\"name\":\"bash\"}", "bash", "command restart "},
        {"{\"type\":\"bash_20241022\"}", "bash", "command restart "},
        {"{\"type\":\"text_editor_20250728\",\"name\":\"str_replace_based_edit_tool\","
         "\"max_characters\":9}",
         "str_replace_based_edit_tool", "command path file_text old_str new_str view_range "},
        {"{\"type\":\"text_editor_20250124\"}", "str_replace_editor",
         "command path file_text old_str new_str view_range "},
        {"{\"type\":\"memory_20250818\",\"name\":\"memory\"}", "memory",
         "command path file_text old_str new_str view_range insert_line insert_text old_path "
         "new_path "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct params p;
        struct api_error e;
        struct strbuf b;
        const char *key;
        json_t *v;
        strbuf_init(&b, 0);
        strbuf_printf(&b, "{\"max_tokens\":5,\"messages\":[" USER("a") "],\"tools\":[%s]}",
                      rows[i].tool);
        if (!read_body(strbuf_str(&b).ptr, &p, &e))
            fail_msg("%s: %s", rows[i].tool, e.message);
        strbuf_reset(&b);
        const json_t *f = json_object_get(json_array_get(p.tools, 0), "function");
        const json_t *schema = json_object_get(f, "parameters");
        json_object_foreach(json_object_get(schema, "properties"), key, v)
            strbuf_printf(&b, "%s ", key);
        assert_string_equal(json_string_value(json_object_get(f, "name")), rows[i].name);
        assert_true(str_eq_c(strbuf_str(&b), rows[i].members));
        assert_string_equal(
            json_string_value(json_array_get(json_object_get(schema, "required"), 0)), "command");
        params_fini(&p);
        strbuf_fini(&b);
    }
}

/* `error_code` shows Anthropic's package that the thread is unknown, so that it sends the whole
 * conversation. */
static void test_a_thread_that_goes_on_was_not_found(void **state)
{
    struct params p;
    struct api_error e;
    struct strbuf b;
    assert_false(read_body("{\"max_tokens\":5,\"thread\":{\"type\":\"continue\","
                           "\"previous_message_id\":\"msg_1\"},\"messages\":[]}",
                           &p, &e));
    params_fini(&p);
    assert_int_equal(e.http_status, 400);
    assert_string_equal(e.param, "thread");
    strbuf_init(&b, 0);
    dialect_messages.error(&b, &e, false);
    json_t *v = json_loadb(strbuf_str(&b).ptr, strbuf_str(&b).len, 0, NULL);
    const json_t *details = json_object_get(json_object_get(v, "error"), "details");
    assert_string_equal(json_string_value(json_object_get(details, "error_code")),
                        "thread_not_found");
    json_decref(v);
    strbuf_fini(&b);
}

/* Joining many neighbouring messages must take time linear in their text. An earlier version
 * copied all text before each neighbour. */
static void test_many_neighbours_are_one_turn(void **state)
{
    enum { MANY = 40000 };
    struct strbuf b;
    struct params p;
    struct api_error e;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "{\"max_tokens\":5,\"messages\":[" USER("begin"));
    for (int i = 0; i < MANY; i++)
        strbuf_append_c(&b, "," USER("01234567890123456789012345678901234567890123456789"));
    strbuf_append_c(&b, "," MODEL("end") "]}");
    assert_true(read_body(strbuf_str(&b).ptr, &p, &e));
    assert_int_equal(json_array_size(p.messages), 2);
    assert_int_equal(json_string_length(json_object_get(json_array_get(p.messages, 0), "content")),
                     5 + MANY * 51);
    params_fini(&p);
    strbuf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_what_a_template_makes_of_a_late_system_message),
        cmocka_unit_test(test_bookkeeping_is_left_out),
        cmocka_unit_test(test_system_messages_of_a_turn),
        cmocka_unit_test(test_tools_of_a_conversation),
        cmocka_unit_test(test_left_out_types_are_told),
        cmocka_unit_test(test_kinds_of_types),
        cmocka_unit_test(test_typed_tools_of_clients),
        cmocka_unit_test(test_a_thread_that_goes_on_was_not_found),
        cmocka_unit_test(test_many_neighbours_are_one_turn),
        cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
