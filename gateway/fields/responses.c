/* Defines the fields of OpenAI's responses that its chat does not have, or has in another form.
 * read.c reads a body by these rows. A row's own parser writes checked values into `params`.
 * tools/set.c collects the tools.
 * The order of rows matters: tool_choice follows tools. Values in `params` are borrowed from the
 * body. The functions are pure, and usable on any thread. */
#include <stdio.h>
#include <string.h>

#include "common/json/text.h"
#include "gateway/fields/rows.h"
#include "gateway/fields/tools.h"
#include "gateway/tools/grammar_source.h"
#include "gateway/tools/set.h"

static bool is_word(const json_t *v, const char *const *words)
{
    const char *s = json_string_value(v);
    for (; s && *words; words++)
        if (strcmp(s, *words) == 0)
            return true;
    return false;
}

/* Reads a tool in the flat form. Tools that only OpenAI's servers run are left out. */
static bool read_tool(struct params *p, json_t *tool, size_t i, const struct field_context *c)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    json_t *parameters = json_object_get(tool, "parameters"), *name = json_object_get(tool, "name");
    const bool is_function = type && strcmp(type, "function") == 0;
    const bool is_custom = type && strcmp(type, "custom") == 0;
    const bool is_space = type && strcmp(type, "namespace") == 0;
    if (!type || !*type)
        return api_error_set(c->e, 400, c->name, "tools[%zu] must be an object with a type.", i);
    char where[64];
    snprintf(where, sizeof where, "tools[%zu]", i);
    if (!is_function && !is_custom && !is_space)
        return tool_set_pass_over(p, where, type, name,
                                  "Describe a tool as {\"type\": \"function\", \"name\": …}, or "
                                  "use the type \"custom\" or \"namespace\".",
                                  c->e);
    if (json_string_length(name) == 0)
        return api_error_set(c->e, 400, c->name, "tools[%zu] must have a name.", i);
    if (is_custom)
        return tool_set_add_custom(p, tool, i, c->e);
    if (is_space)
        return tool_set_add_namespace(p, tool, i, c->e);
    snprintf(where, sizeof where, "tools[%zu].parameters", i);
    if (!tool_set_check_schema(parameters, where, c->e))
        return false;
    tool_set_add_function(p, name, json_object_get(tool, "description"), parameters);
    return true;
}

static bool parse_tools(struct params *p, const json_t *v, const struct field_context *c)
{
    return field_tools(p, v, c, read_tool);
}

static bool parse_tool_choice(struct params *p, const json_t *v, const struct field_context *c)
{
    return field_tool_choice(p, v, c);
}

static bool parse_truncation(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *word = json_string_value(v);
    const bool is_auto = word && strcmp(word, "auto") == 0;
    if (!is_auto && (!word || strcmp(word, "disabled") != 0))
        return api_error_set(c->e, 400, c->name, "%s must be \"auto\" or \"disabled\".", c->name);
    if (is_auto)
        p->truncate_prompt_tokens = -1; /* -1 keeps as many tokens as fit, as in vLLM */
    return true;
}

static bool parse_text(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *key;
    json_t *value;
    if (!json_text_is_object(v))
        return field_wrong_type(c->e, c->name, "an object", v);
    json_object_foreach((json_t *)v, key, value)
    {
        bool ok = json_is_null(value);
        if (ok)
            continue;
        if (strcmp(key, "format") == 0)
            ok = field_known_format(c, "text.format", value, true) &&
                 grammar_from_flat_format(p, "text.format", value, c->e);
        else if (strcmp(key, "verbosity") == 0)
            ok = is_word(value, (const char *[]){"low", "medium", "high", NULL}) ||
                 api_error_set(c->e, 400, "text.verbosity",
                               "text.verbosity must be low, medium or high.");
        else
            ok = field_unknown_member(c, c->name, key);
        if (!ok)
            return false;
    }
    return true;
}

/* Reads the members of OpenRouter's form, which chat clients send: enabled, exclude, and
 * max_tokens (a budget, which is ignored). */
static bool read_switch(struct params *p, const char *key, const json_t *value,
                        const struct field_context *c)
{
    bool is_on = true;
    if (strcmp(key, "max_tokens") == 0)
        return json_is_integer(value) ||
               field_wrong_type(c->e, "reasoning.max_tokens", "an integer", value);
    if (!field_read_bool(value, "reasoning.enabled or reasoning.exclude", &is_on, c->e))
        return false;
    if (strcmp(key, "exclude") == 0)
        p->include_reasoning = !is_on;
    else if (!is_on)
        p->reasoning_effort = STR("none");
    return true;
}

static bool read_reasoning(struct params *p, const char *key, const json_t *value,
                           const struct field_context *c)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   "max", NULL};
    static const char *const summaries[] = {"auto", "concise", "detailed", NULL};
    static const char *const switches[] = {"enabled", "exclude", "max_tokens"};
    if (strcmp(key, "effort") == 0) {
        if (!is_word(value, efforts))
            return api_error_set(c->e, 400, "reasoning.effort",
                                 "reasoning.effort must be one of none, minimal, low, medium, "
                                 "high, xhigh, max.");
        p->reasoning_effort = params_json_str(value);
        return true;
    }
    if (strcmp(key, "summary") == 0 || strcmp(key, "generate_summary") == 0)
        return is_word(value, summaries) ||
               api_error_set(c->e, 400, "reasoning.summary",
                             "reasoning.%s must be one of auto, concise, detailed.", key);
    for (size_t i = 0; i < sizeof switches / sizeof *switches && p->kind == API_CHAT; i++)
        if (strcmp(key, switches[i]) == 0)
            return read_switch(p, key, value, c);
    return field_unknown_member(c, c->name, key);
}

/* Reads `reasoning`. `summary` has no effect: answers contain the reasoning itself. */
static bool parse_reasoning(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *key;
    json_t *value;
    if (!json_text_is_object(v))
        return field_wrong_type(c->e, c->name, "an object", v);
    json_object_foreach((json_t *)v, key,
                        value) if (!json_is_null(value) &&
                                   !read_reasoning(p, key, value, c)) return false;
    return true;
}

/* Returns true for parts of `include` that have no effect here. Reasoning is never hidden, so it
 * needs no encrypted form. This server does not run hosted tools, so they have no results. */
static bool is_of_hosted_tools(const char *s)
{
    static const char *const found[] = {"file_search_call.results",
                                        "web_search_call.results",
                                        "web_search_call.action.sources",
                                        "code_interpreter_call.outputs",
                                        "computer_call_output.output.image_url",
                                        "message.input_image.image_url"};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        if (strcmp(s, found[i]) == 0)
            return true;
    return false;
}

static bool parse_include(struct params *p, const json_t *v, const struct field_context *c)
{
    if (!json_is_array(v))
        return field_wrong_type(c->e, c->name, "a list of strings", v);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *s = json_string_value(json_array_get(v, i));
        if (!s)
            return field_wrong_type(c->e, c->name, "a list of strings", json_array_get(v, i));
        if (strcmp(s, "message.output_text.logprobs") == 0)
            p->want_logprobs = true;
        else if (strcmp(s, "reasoning.encrypted_content") != 0 && !is_of_hosted_tools(s))
            return api_error_set(c->e, 400, c->name,
                                 "include: this server cannot return \"%.60s\". It supports only "
                                 "message.output_text.logprobs and reasoning.encrypted_content.",
                                 s);
    }
    return true;
}

static bool parse_stream_options(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *key;
    json_t *value;
    if (!json_text_is_object(v))
        return field_wrong_type(c->e, c->name, "an object", v);
    json_object_foreach((json_t *)v, key,
                        value) if (!json_is_null(value) &&
                                   strcmp(key, "include_obfuscation") != 0 &&
                                   !field_unknown_member(c, c->name, key)) return false;
    return true;
}

#define NOTHING_KEPT                                                                               \
    "is not supported by this server: it keeps no conversations. Send the whole conversation as "  \
    "input"

static const struct field rows[] = {
    {ROW("input", FIELD_JSON, RESPONSES), .offset = AT(prompt), .want = JSON_NULL,
     .why = "a text, or items: messages, function calls and their outputs, reasoning"},
    {ROW("instructions", FIELD_JSON, RESPONSES), .offset = AT(system), .want = JSON_STRING,
     .why = "a system message at the beginning"},
    {ROW("tools", FIELD_CUSTOM, RESPONSES), .parse = parse_tools,
     .why = "functions, custom tools and namespaces of functions; tools of a provider's server are "
            "left out"},
    {ROW("tool_choice", FIELD_CUSTOM, RESPONSES), .parse = parse_tool_choice,
     .why = "none, required, a function or a custom tool, allowed_tools; auto with "
            "--enable-auto-tool-choice"},
    ROW_CUSTOM(text, RESPONSES, "format: text, json_object, json_schema; verbosity: ignored"),
    ROW_CUSTOM(
        reasoning, RESPONSES | CHAT,
        "effort: passed to the chat template, none turns thinking off; summary: ignored, answers "
        "have the reasoning itself; in chat also enabled, exclude and max_tokens (ignored)"),
    ROW_CUSTOM(include, RESPONSES,
               "message.output_text.logprobs; reasoning.encrypted_content: answers have the "
               "reasoning unencrypted"),
    {ROW("stream_options", FIELD_CUSTOM, RESPONSES), .parse = parse_stream_options,
     .why = "include_obfuscation: ignored, because TLS protects the stream"},
    {ROW("store", FIELD_HARMLESS, RESPONSES),
     .why = "the server stores no answers; answers say false, as in vLLM"},
    ROW_HARMLESS("max_tool_calls", RESPONSES,
                 "it limits tools that a server runs, and this server runs none"),
    ROW_HARMLESS("prompt_cache_options", CHAT | RESPONSES, "the prefix cache does not need it"),
    ROW_ONLY("background", RESPONSES, "false", "the server keeps no answers to fetch later"),
    ROW_CUSTOM(truncation, RESPONSES,
               "disabled: a prompt that is too long is a 400; auto: its beginning is cut off"),
    ROW_REFUSE("background_options", RESPONSES, NOTHING_KEPT),
    ROW_REFUSE("previous_response_id", RESPONSES, NOTHING_KEPT),
    ROW_REFUSE("conversation", RESPONSES, NOTHING_KEPT),
    ROW_REFUSE("prompt", RESPONSES, "is not supported by this server: it stores no prompts"),
    ROW_HARMLESS("context_management", RESPONSES, "the model reads all messages as sent"),
    ROW_HARMLESS("client_metadata", RESPONSES | CHAT, "the server does not use it"),
    ROW_REFUSE("moderation", CHAT | RESPONSES, "is not supported by this server"),
    ROW_REFUSE("image", RESPONSES, "is not supported by this server: answers are text only"),
    ROW_REFUSE("access_programs", RESPONSES, "is not supported by this server"),
    ROW_REFUSE("previous_input_messages", RESPONSES, NOTHING_KEPT),
    ROW_REFUSE("enable_response_messages", RESPONSES, "is not supported by this server"),
};

FIELD_TABLE(responses);
