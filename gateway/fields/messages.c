/* Defines the fields of Anthropic's messages that OpenAI's chat does not have, or has in another
 * form.
 * read.c reads a body by these rows. A row's own parser writes checked values into `params`.
 * tools/set.c collects the tools.
 * The order of rows matters: tool_choice follows tools, and thinking follows output_config.
 * Values in `params` are borrowed from the body. The functions are pure, and usable on any
 * thread. */
#include <stdio.h>
#include <string.h>

#include "common/json/text.h"
#include "gateway/fields/rows.h"
#include "gateway/fields/tools.h"
#include "gateway/tools/grammar_source.h"
#include "gateway/tools/kinds.h"
#include "gateway/tools/set.h"

static const char *type_of(const json_t *v)
{
    return json_string_value(json_object_get(v, "type"));
}

/* Reads a tool of a type that Anthropic's models were trained on. The tool becomes a function,
 * with the name from the request, when its schema is known. */
static bool read_typed_tool(struct params *p, const json_t *tool, const char *type, size_t i,
                            const struct field_context *c)
{
    char where[64];
    const json_t *name = json_object_get(tool, "name");
    json_t *function = tool_kind_function(type);
    snprintf(where, sizeof where, "tools[%zu]", i);
    if (!function)
        return tool_set_pass_over(p, where, type, name,
                                  "Describe a tool as {\"name\": …, \"input_schema\": …}, without "
                                  "a type or with the type \"custom\".",
                                  c->e);
    if (json_string_length(name) == 0)
        name = json_object_get(function, "name");
    tool_set_add_function(p, name, json_object_get(function, "description"),
                          json_object_get(function, "parameters"));
    json_decref(function);
    return true;
}

/* Reads a tool that the client runs. */
static bool read_tool(struct params *p, json_t *tool, size_t i, const struct field_context *c)
{
    const char *type = type_of(tool);
    json_t *description = json_object_get(tool, "description");
    if (!json_text_is_object(tool))
        return api_error_set(c->e, 400, c->name, "tools[%zu] must be an object.", i);
    if (!type && json_object_get(tool, "type") && !json_is_null(json_object_get(tool, "type")))
        return api_error_set(c->e, 400, c->name, "tools[%zu].type must be a string.", i);
    if (type && *type && strcmp(type, "custom") != 0)
        return read_typed_tool(p, tool, type, i, c);
    if (json_string_length(json_object_get(tool, "name")) == 0)
        return api_error_set(c->e, 400, c->name, "tools[%zu] must have a name.", i);
    char where[64];
    snprintf(where, sizeof where, "tools[%zu].input_schema", i);
    if (!tool_set_check_schema(json_object_get(tool, "input_schema"), where, c->e))
        return false;
    if (!json_text_is_object(json_object_get(tool, "input_schema")))
        return api_error_set(c->e, 400, c->name, "tools[%zu].input_schema must be an object.", i);
    tool_set_add_function(p, json_object_get(tool, "name"),
                          json_is_string(description) ? description : NULL,
                          json_object_get(tool, "input_schema"));
    return true;
}

static bool parse_tools(struct params *p, const json_t *v, const struct field_context *c)
{
    return field_tools(p, v, c, read_tool);
}

/* Leaves out MCP servers, which only Anthropic's server would call. This row must follow tools. */
static bool parse_mcp_servers(struct params *p, const json_t *v, const struct field_context *c)
{
    if (!json_is_array(v))
        return field_wrong_type(c->e, c->name, "a list", v);
    if (json_array_size(v) > 0)
        tool_set_leave_out(p, "mcp", NULL);
    return true;
}

static bool parse_tool_choice(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *type = type_of(v);
    const json_t *name = json_object_get(v, "name");
    const json_t *one = json_object_get(v, "disable_parallel_tool_use");
    bool only_one = false;
    if (type && strcmp(type, "none") == 0)
        p->tool_choice = TOOL_CHOICE_NONE;
    else if (type && (strcmp(type, "any") == 0 ||
                      (strcmp(type, "tool") == 0 && json_string_length(name) > 0)))
        p->tool_choice = TOOL_CHOICE_REQUIRED;
    else if (!type || strcmp(type, "auto") != 0)
        return api_error_set(
            c->e, 400, c->name,
            "tool_choice must have the type auto, any or none, or the type tool and a name.");
    if (type && strcmp(type, "tool") == 0 && !field_force_tool(p, name, NULL, c))
        return false;
    if (one && !json_is_null(one) &&
        !field_read_bool(one, "tool_choice.disable_parallel_tool_use", &only_one, c->e))
        return false;
    p->parallel_tool_calls = !only_one;
    return field_known_members(c, c->name, v,
                               (const char *[]){"type", "name", "disable_parallel_tool_use", NULL});
}

/* Reads `thinking`. The budget is ignored: max_tokens limits reasoning and answer together. */
static bool parse_thinking(struct params *p, const json_t *v, const struct field_context *c)
{
    static const char *const on[] = {"enabled", "adaptive", "between_tools"};
    const char *type = type_of(v);
    const json_t *display = json_object_get(v, "display");
    const char *shown = json_string_value(display);
    if (!field_known_members(c, c->name, v,
                             (const char *[]){"type", "budget_tokens", "display", NULL}))
        return false;
    if (display && !json_is_null(display) &&
        (!shown || (strcmp(shown, "summarized") != 0 && strcmp(shown, "omitted") != 0)))
        return api_error_set(c->e, 400, "thinking.display",
                             "thinking.display must be summarized or omitted.");
    if (shown && *shown == 'o')
        p->include_reasoning = false;
    for (size_t i = 0; type && i < sizeof on / sizeof *on; i++)
        if (strcmp(type, on[i]) == 0)
            return true;
    if (!type || strcmp(type, "disabled") != 0)
        return api_error_set(c->e, 400, c->name,
                             "thinking must be of type enabled, adaptive, between_tools or "
                             "disabled.");
    p->include_reasoning = false;
    if (p->reasoning_effort.len == 0)
        p->reasoning_effort = STR("none");
    return true;
}

/* Reads `thread`. With this field the tool runner of Anthropic's package asks the server to keep
 * the conversation, and later sends only new messages. After the error "thread not found" it
 * sends all messages again. */
static bool parse_thread(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *type = type_of(v);
    if (field_is_empty(v))
        return true;
    if (type && strcmp(type, "create") == 0)
        return field_known_members(c, c->name, v, (const char *[]){"type", NULL});
    c->e->code = API_THREAD_NOT_FOUND;
    return api_error_set(c->e, 400, c->name,
                         "thread must be of type create on this server, or be left out: this "
                         "server keeps no conversations. Send all messages.");
}

/* Reads `output_config`. This row must precede thinking, so that turning thinking off overrides
 * an effort. */
static bool parse_output_config(struct params *p, const json_t *v, const struct field_context *c)
{
    static const char *const efforts[] = {"low", "medium", "high", "xhigh", "max"};
    const char *key;
    json_t *value;
    if (!json_text_is_object(v))
        return field_wrong_type(c->e, c->name, "an object", v);
    json_object_foreach((json_t *)v, key, value)
    {
        bool known = json_is_null(value);
        if (!known && strcmp(key, "format") == 0) {
            const char *type = type_of(value);
            if (!type || strcmp(type, "json_schema") != 0)
                return api_error_set(c->e, 400, c->name,
                                     "output_config.format must be of type json_schema.");
            if (!field_known_format(c, "output_config.format", value, true) ||
                !grammar_from_flat_format(p, "output_config.format", value, c->e))
                return false;
            continue;
        }
        if (!known && strcmp(key, "effort") != 0)
            return api_error_set(c->e, 400, c->name,
                                 "output_config.%.40s is not supported by this server.", key);
        for (size_t i = 0; !known && i < sizeof efforts / sizeof *efforts; i++)
            known = json_is_string(value) && strcmp(json_string_value(value), efforts[i]) == 0;
        if (!known)
            return api_error_set(c->e, 400, c->name,
                                 "output_config.effort must be one of low, medium, high, xhigh, "
                                 "max.");
        if (!json_is_null(value))
            p->reasoning_effort = params_json_str(value);
    }
    return true;
}

static const struct field rows[] = {
    {ROW("system", FIELD_JSON, ANTHROPIC), .offset = AT(system), .want = JSON_NULL,
     .why = "a text, or blocks of text"},
    {ROW("tools", FIELD_CUSTOM, ANTHROPIC), .parse = parse_tools,
     .why = "Anthropic's form: name, description, input_schema; tools of a provider's server are "
            "left out"},
    ROW_CUSTOM(mcp_servers, ANTHROPIC, "left out, like all tools of a provider's server"),
    {ROW("tool_choice", FIELD_CUSTOM, ANTHROPIC), .parse = parse_tool_choice,
     .why = "any, tool, none; auto with --enable-auto-tool-choice; disable_parallel_tool_use"},
    ROW_CUSTOM(output_config, ANTHROPIC,
               "effort: passed to the chat template; format: json_schema"),
    ROW_CUSTOM(
        thinking, ANTHROPIC | CHAT,
        "disabled turns thinking off; otherwise the model decides; budget_tokens is ignored"),
    ROW_CUSTOM(thread, ANTHROPIC, "of type create; the server keeps no conversations"),
    ROW_HARMLESS("cache_control", ANTHROPIC, "the prefix cache does not need it"),
    ROW_HARMLESS("diagnostics", ANTHROPIC, "the server sends none"),
    ROW_HARMLESS("user_profile_id", ANTHROPIC, "the server does not use it"),
    ROW_HARMLESS("workspace_id", ANTHROPIC, "the server does not use it"),
    ROW_ONLY("speed", ANTHROPIC, "\"standard\"", "there is only one speed"),
    ROW_REFUSE("inference_geo", ANTHROPIC,
               "is not supported by this server: it cannot choose a region"),
    ROW_REFUSE("compaction", ANTHROPIC,
               "is not supported by this server: send all messages that the model must read"),
    ROW_REFUSE("fallbacks", ANTHROPIC,
               "is not supported: this server chooses a fallback in its file of models"),
    ROW_REFUSE("fallback_credit_token", ANTHROPIC,
               "is not supported: this server chooses a fallback in its file of models"),
    ROW_HARMLESS("billing_policy", ANTHROPIC, "the server bills nothing"),
    ROW_REFUSE("output_format", ANTHROPIC, "is not supported by this server: use output_config"),
    ROW_REFUSE("container", ANTHROPIC, "is not supported by this server: it runs no code"),
    ROW_HARMLESS("betas", ANTHROPIC,
                 "clients send betas in a header, which the server does not read"),
    ROW_HARMLESS("anthropic_beta", ANTHROPIC, "Bedrock's name for betas"),
    ROW_HARMLESS("anthropic_version", ANTHROPIC,
                 "Bedrock and Vertex send it; the server has only one version"),
    ROW_HARMLESS("context_management", ANTHROPIC, "the model reads all messages as sent"),
};

FIELD_TABLE(messages);
