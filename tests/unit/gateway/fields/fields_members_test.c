/* Tests the members of messages, parts, blocks, calls, tools and items. Each case is a body that
 * `params_init` reads under a policy for unknown fields. Invariants: bodies that real clients
 * send are accepted, and an unknown member is refused with its path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/fields/read.h"
#include "gateway/params/params.h"

static bool read_with(enum api_kind kind, const char *text, enum unknown_fields unknown,
                      struct api_error *e)
{
    struct params p;
    const struct params_policy policy = {
        .max_logprobs = 20, .auto_tools = true, .unknown = unknown};
    json_t *body = json_loads(text, 0, NULL);
    assert_non_null(body);
    *e = (struct api_error){0};
    bool taken = params_init(&p, kind, body, &policy, e);
    params_fini(&p);
    return taken;
}

#define CHAT(message) "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}," message "]}"
#define PART(part)    CHAT("{\"role\":\"user\",\"content\":[" part "]}")
#define CLAUDE(block)                                                                              \
    "{\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":[" block "]}]}"
#define CHAT_TOOL(rest) "{\"messages\":[],\"tools\":[{\"type\":\"function\"," rest "}]}"
#define TOOL(rest)                                                                                 \
    "{\"max_tokens\":3,\"messages\":[],\"tools\":[{\"name\":\"f\",\"input_schema\":{}" rest "}]}"
#define ITEM(item) "{\"input\":[" item "]}"
#define FLAT_TOOL(rest)                                                                            \
    "{\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"" rest "}]}"

static void what_nobody_knows_is_refused_by_its_place(void **state)
{
    static const struct {
        enum api_kind kind;
        const char *body, *param;
    } cases[] = {
        {API_CHAT, CHAT("{\"role\":\"user\",\"content\":\"a\",\"extra\":1}"), "messages[1].extra"},
        {API_TOKENIZE, CHAT("{\"role\":\"user\",\"content\":\"a\",\"extra\":1}"),
         "messages[1].extra"},
        {API_CHAT, CHAT("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"extra\":1}]}"),
         "messages[1].tool_calls[0].extra"},
        {API_CHAT,
         CHAT("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"function\":{\"args\":1}}]}"),
         "messages[1].tool_calls[0].function.args"},
        {API_CHAT, CHAT_TOOL("\"function\":{\"name\":\"f\"},\"extra\":1"), "tools[0].extra"},
        {API_CHAT, CHAT_TOOL("\"function\":{\"name\":\"f\",\"schema\":{}}"),
         "tools[0].function.schema"},
        {API_MESSAGES, CLAUDE("{\"type\":\"tool_use\",\"args\":1}"), "messages[0].content[0].args"},
        {API_COUNT_TOKENS, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"id\":1}]}",
         "messages[0].id"},
        {API_MESSAGES, TOOL(",\"extra\":1"), "tools[0].extra"},
        {API_RESPONSES, ITEM("{\"role\":\"user\",\"content\":\"a\",\"extra\":1}"),
         "input[0].extra"},
        {API_RESPONSES, ITEM("{\"type\":\"function_call\",\"args\":1}"), "input[0].args"},
        {API_RESPONSES, FLAT_TOOL(",\"input_schema\":{}"), "tools[0].input_schema"},
    };
    struct api_error e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (read_with(cases[i].kind, cases[i].body, UNKNOWN_REFUSE, &e) || e.http_status != 400 ||
            strcmp(e.param, cases[i].param) != 0)
            fail_msg("%s: %d, %s %s", cases[i].body, e.http_status, e.param, e.message);
        assert_true(read_with(cases[i].kind, cases[i].body, UNKNOWN_WARN, &e));
        assert_true(read_with(cases[i].kind, cases[i].body, UNKNOWN_IGNORE, &e));
    }
}

/* A known member that this server does not support would change the answer. No policy for
 * unknown fields accepts it, and the error says that it is not supported. */
static void what_is_not_done_is_refused_whatever_the_policy(void **state)
{
    static const struct {
        enum api_kind kind;
        const char *body, *param, *why;
    } cases[] = {
        {API_CHAT, CHAT("{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\"}}"),
         "messages[1].function_call", "use tool_calls"},
        {API_CHAT, CHAT("{\"role\":\"assistant\",\"audio\":{\"id\":\"f\"}}"), "messages[1].audio",
         "text only"},
        {API_CHAT, CHAT("{\"role\":\"user\",\"content\":\"a\",\"documents\":[{\"text\":\"b\"}]}"),
         "messages[1].documents", "use the field documents"},
        {API_CHAT, CHAT("{\"role\":\"user\",\"content\":\"a\",\"name\":7}"), "messages[1].name",
         "must be a string"},
        {API_CHAT, CHAT("{\"role\":\"tool\",\"content\":\"a\",\"tool_call_id\":[\"1\"]}"),
         "messages[1].tool_call_id", "must be a string"},
        {API_CHAT, CHAT("{\"role\":\"user\",\"content\":\"a\",\"prefix\":true}"),
         "messages[1].prefix", "if its role is assistant"},
        {API_CHAT,
         CHAT("{\"role\":\"assistant\",\"content\":\"a\",\"prefix\":true},{\"role\":\"user\","
              "\"content\":\"b\"}"),
         "messages[1].prefix", "last message"},
        {API_CHAT, CHAT("{\"role\":\"assistant\",\"content\":\"a\",\"prefix\":1}"),
         "messages[1].prefix", "must be a boolean"},
        {API_MESSAGES, TOOL(",\"allowed_callers\":[\"code_execution_20250825\"]"),
         "tools[0].allowed_callers", "direct"},
        {API_MESSAGES, TOOL(",\"allowed_callers\":[\"direct\",\"code_execution_20250825\"]"),
         "tools[0].allowed_callers", "direct"},
        {API_RESPONSES, FLAT_TOOL(",\"allowed_callers\":[\"programmatic\"]"),
         "tools[0].allowed_callers", "direct"},
        {API_RESPONSES, FLAT_TOOL(",\"async\":true"), "tools[0].async", "is not supported"},
        {API_RESPONSES, ITEM("{\"type\":\"function_call\",\"call_id\":\"1\",\"async\":true}"),
         "input[0].async", "is not supported"},
    };
    static const enum unknown_fields policies[] = {UNKNOWN_REFUSE, UNKNOWN_WARN, UNKNOWN_IGNORE};
    struct api_error e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < sizeof policies / sizeof *policies; k++)
            if (read_with(cases[i].kind, cases[i].body, policies[k], &e) || e.http_status != 400 ||
                strcmp(e.param, cases[i].param) != 0 || !strstr(e.message, cases[i].why))
                fail_msg("%s: %d, %s %s", cases[i].body, e.http_status, e.param, e.message);
}

/* Members that clients add and that change no answer are accepted. The test has one body of each
 * dialect with all such members. */
static void what_changes_nothing_is_taken(void **state)
{
    static const struct {
        enum api_kind kind;
        const char *body;
    } cases[] = {
        {API_CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\","
         "\"cache_control\":{\"type\":\"ephemeral\"}}],\"cache_control\":{\"type\":\"ephemeral\"}}]"
         ","
         "\"tools\":[{\"type\":\"function\",\"defer_loading\":true,\"cache_control\":{\"type\":"
         "\"ephemeral\"},\"function\":{\"name\":\"f\",\"strict\":true,\"cache_control\":{}}}],"
         "\"client_metadata\":{\"a\":\"b\"},\"store\":true,\"metadata\":{\"a\":\"b\"},"
         "\"prompt_cache_key\":\"k\",\"prompt_cache_retention\":\"24h\",\"safety_identifier\":"
         "\"s\","
         "\"service_tier\":\"priority\",\"verbosity\":\"low\"}"},
        {API_RESPONSES,
         "{\"input\":[{\"role\":\"user\",\"content\":\"a\",\"id\":\"m\",\"phase\":\"x\"}],"
         "\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"defer_loading\":true,\"strict\":true,"
         "\"output_schema\":{\"type\":\"object\"}}],\"client_metadata\":{\"a\":\"b\"},"
         "\"store\":true,\"metadata\":{\"a\":\"b\"},\"prompt_cache_key\":\"k\","
         "\"prompt_cache_retention\":\"24h\",\"safety_identifier\":\"s\",\"service_tier\":\"flex\","
         "\"text\":{\"verbosity\":\"high\"},\"reasoning\":{\"summary\":\"detailed\"},\"include\":["
         "\"reasoning.encrypted_content\",\"file_search_call.results\"],\"context_management\":[{"
         "\"type\":\"compaction\",\"compact_threshold\":1000}]}"},
        {API_MESSAGES,
         "{\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
         "\"text\":"
         "\"a\",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}}]},{\"role\":\"system\","
         "\"content\":\"b\",\"clear_at\":\"never\",\"output_config\":{\"effort\":\"low\"}}],"
         "\"system\":[{\"type\":\"text\",\"text\":\"c\",\"cache_control\":{\"type\":\"ephemeral\"}}"
         "],"
         "\"tools\":[{\"name\":\"f\",\"input_schema\":{},\"cache_control\":{\"type\":\"ephemeral\"}"
         ","
         "\"defer_loading\":true,\"eager_input_streaming\":true,\"strict\":true,\"input_examples\":"
         "[{}"
         "]}],\"context_management\":{\"edits\":[{\"type\":\"clear_thinking_20251015\",\"keep\":"
         "\"all\""
         "}]},\"metadata\":{\"user_id\":\"u\"},\"service_tier\":\"auto\",\"thinking\":{\"type\":"
         "\"adaptive\",\"display\":\"omitted\"},\"output_config\":{\"effort\":\"high\"},\"betas\":["
         "\"b\"],\"anthropic_version\":\"bedrock-2023-05-31\",\"mcp_servers\":[{\"type\":\"url\","
         "\"name\":\"n\",\"url\":\"u\"}],\"cache_control\":{\"type\":\"ephemeral\"}}"},
    };
    struct api_error e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!read_with(cases[i].kind, cases[i].body, UNKNOWN_REFUSE, &e))
            fail_msg("%s: %s %s", cases[i].body, e.param, e.message);
}

static void a_prefix_is_gone_on_with(void **state)
{
    static const struct {
        const char *prefix;
        bool goes_on;
    } cases[] = {{"true", true}, {"false", false}, {"null", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct params_policy policy = {.max_logprobs = 20};
        struct api_error e = {0};
        struct params p;
        json_t *body = json_pack("{s:[{s:s,s:s},{s:s,s:s,s:o}]}", "messages", "role", "user",
                                 "content", "a", "role", "assistant", "content", "b", "prefix",
                                 json_loads(cases[i].prefix, JSON_DECODE_ANY, NULL));
        assert_true(params_init(&p, API_CHAT, body, &policy, &e));
        assert_int_equal(p.continue_final_message, cases[i].goes_on);
        assert_int_equal(p.add_generation_prompt, !cases[i].goes_on);
        params_fini(&p);
    }
}

/* The gateway accepts bodies from `model_dump()` of the openai and anthropic packages, from
 * langchain and litellm, and from its own answers. */
static void what_clients_send_is_taken(void **state)
{
    static const struct {
        enum api_kind kind;
        const char *body;
    } cases[] = {
        {API_CHAT,
         CHAT("{\"role\":\"assistant\",\"content\":\"b\",\"refusal\":null,\"annotations\":[],"
              "\"audio\":null,\"function_call\":null,\"tool_calls\":[],\"reasoning\":null,"
              "\"parsed\":null,\"reasoning_content\":\"c\",\"name\":\"d\",\"extra\":null}")},
        {API_CHAT, PART("{\"type\":\"text\",\"text\":\"x\",\"cache_control\":{\"type\":"
                        "\"ephemeral\"}},\"y\"")},
        {API_CHAT, PART("{\"type\":\"refusal\",\"refusal\":\"no\"}")},
        {API_CHAT, CHAT("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":"
                        "\"function\",\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":"
                        "\"{}\",\"parsed_arguments\":null}}]},{\"role\":\"tool\","
                        "\"tool_call_id\":\"1\",\"name\":\"f\",\"content\":\"x\"}")},
        {API_CHAT, CHAT_TOOL("\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":"
                             "{\"any\":1},\"strict\":true,\"return\":{}}")},
        {API_MESSAGES, CLAUDE("{\"type\":\"text\",\"text\":\"a\",\"citations\":null,"
                              "\"cache_control\":{\"type\":\"ephemeral\"}},"
                              "{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"is_error\":true,"
                              "\"content\":\"x\",\"cache_control\":{}},"
                              "{\"type\":\"thinking\",\"thinking\":\"a\",\"signature\":\"\"},"
                              "{\"type\":\"redacted_thinking\",\"data\":\"\"},"
                              "{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":{\"a\":"
                              "1},\"caller\":{\"type\":\"direct\"}}")},
        {API_MESSAGES, TOOL(",\"type\":\"custom\",\"description\":\"d\",\"cache_control\":{},"
                            "\"strict\":false,\"defer_loading\":false,\"eager_input_streaming\":"
                            "true")},
        {API_RESPONSES,
         ITEM("{\"type\":\"message\",\"id\":\"msg_1\",\"status\":\"completed\",\"role\":"
              "\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"a\","
              "\"annotations\":[],\"logprobs\":[]}],\"phase\":null},"
              "{\"type\":\"function_call\",\"id\":\"fc\",\"call_id\":\"1\",\"name\":\"f\","
              "\"arguments\":\"{}\",\"status\":\"completed\"},"
              "{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"x\"},"
              "{\"type\":\"reasoning\",\"id\":\"rs\",\"summary\":[{\"type\":\"summary_text\","
              "\"text\":\"a\"}],\"content\":[],\"encrypted_content\":null}")},
        {API_RESPONSES, FLAT_TOOL(",\"description\":\"d\",\"parameters\":{\"a\":1},\"strict\":"
                                  "true,\"defer_loading\":false,\"output_schema\":null,"
                                  "\"allowed_callers\":[\"direct\"]")},
        /* these members have empty or false values */
        {API_CHAT, CHAT("{\"role\":\"assistant\",\"content\":\"b\",\"documents\":[],\"audio\":{},"
                        "\"function_call\":false,\"prefix\":false}")},
        {API_CHAT, PART("{\"type\":\"text\",\"text\":\"x\",\"parsed\":{\"a\":1},"
                        "\"prompt_cache_breakpoint\":{\"mode\":\"explicit\"}}")},
        {API_MESSAGES, TOOL(",\"allowed_callers\":[\"direct\"],\"input_examples\":[{\"a\":1}]")},
        {API_MESSAGES, TOOL(",\"allowed_callers\":[]")},
        {API_MESSAGES,
         "{\"max_tokens\":3,\"thread\":{\"type\":\"create\"},\"messages\":[{\"role\":\"user\","
         "\"content\":\"a\"},{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\","
         "\"model\":\"m\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}],\"stop_reason\":"
         "\"end_turn\",\"stop_sequence\":\"x\",\"usage\":{\"input_tokens\":1},\"container\":{}}]}"},
        {API_RESPONSES,
         ITEM("{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
              "\"text\":\"a\",\"parsed\":{\"a\":1},\"logprobs\":null}]},{\"type\":null,\"role\":"
              "\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\","
              "\"prompt_cache_breakpoint\":{\"mode\":\"explicit\"}}]},{\"type\":\"function_call\","
              "\"call_id\":\"1\",\"name\":\"f\",\"arguments\":\"{}\",\"id\":null,\"async\":false,"
              "\"async_\":null,\"caller\":{\"type\":\"direct\"},\"namespace\":null}")},
    };
    struct api_error e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!read_with(cases[i].kind, cases[i].body, UNKNOWN_REFUSE, &e))
            fail_msg("%s: %s", cases[i].body, e.message);
}

/* Only the text of a text part can change an answer, so any other member is accepted. */
static void text_parts_may_have_any_member(void **state)
{
    static const struct {
        enum api_kind kind;
        const char *body;
    } cases[] = {
        /* The Agents SDK copies the members of an answer's message into a text part. */
        {API_CHAT,
         PART("{\"type\":\"text\",\"text\":\"x\",\"role\":\"assistant\",\"refusal\":null,"
              "\"annotations\":null,\"status\":\"completed\",\"providerData\":{},\"a b\":1}")},
        {API_MESSAGES, CLAUDE("{\"type\":\"text\",\"text\":\"a\",\"extra\":1}")},
        {API_MESSAGES,
         CLAUDE("{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":[{\"type\":"
                "\"text\",\"text\":\"a\",\"b\":1}]},{\"type\":\"tool_result\","
                "\"tool_use_id\":\"2\",\"content\":null}")},
        {API_RESPONSES, ITEM("{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"
                             "\"a\",\"b\":1}]}")},
        {API_CHAT, CHAT("{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"a\",\"is_error\":"
                        "true,\"status\":\"error\",\"timestamp\":1,\"model\":\"m\"}")},
        {API_CHAT, CHAT_TOOL("\"function\":{\"name\":\"f\",\"title\":\"t\",\"annotations\":{}}")},
    };
    struct api_error e;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!read_with(cases[i].kind, cases[i].body, UNKNOWN_REFUSE, &e))
            fail_msg("%s: %s", cases[i].body, e.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_nobody_knows_is_refused_by_its_place),
        cmocka_unit_test(what_is_not_done_is_refused_whatever_the_policy),
        cmocka_unit_test(what_changes_nothing_is_taken),
        cmocka_unit_test(a_prefix_is_gone_on_with),
        cmocka_unit_test(what_clients_send_is_taken),
        cmocka_unit_test(text_parts_may_have_any_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
