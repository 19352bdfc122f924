/* What is asked: the prompt, the messages, and how they become ids. */
#include <string.h>

#include "gateway/fields.h"

static bool parse_truncation_side(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *s = json_string_value(v);
    if (!s || (strcmp(s, "left") != 0 && strcmp(s, "right") != 0))
        return api_error_set(c->e, 400, c->name, "%s must be \"left\" or \"right\".", c->name);
    p->truncate_right = *s == 'r';
    return true;
}

static bool parse_request_id(struct params *p, const json_t *v, const struct field_context *c)
{
    if (!json_is_string(v))
        return field_wrong_type(c->e, c->name, "a string", v);
    struct str s = params_json_str(v);
    bool ok = s.len > 0 && s.len <= PARAMS_MAX_REQUEST_ID;
    for (size_t i = 0; ok && i < s.len; i++)
        ok = (s.ptr[i] >= '0' && s.ptr[i] <= '9') || (s.ptr[i] >= 'a' && s.ptr[i] <= 'z') ||
             (s.ptr[i] >= 'A' && s.ptr[i] <= 'Z') || (s.ptr[i] && strchr("-_.:", s.ptr[i]));
    if (!ok)
        return api_error_set(c->e, 400, c->name,
                             "%s must have 1 to %u letters, digits, and - _ . : between them.",
                             c->name, PARAMS_MAX_REQUEST_ID);
    p->request_id = s;
    return true;
}

static bool parse_chat_template(struct params *p, const json_t *v, const struct field_context *c)
{
    if (!c->policy->trust_chat_template)
        return api_error_set(c->e, 400, c->name,
                             "%s is not taken from requests: this server was started without "
                             "--trust-request-chat-template.",
                             c->name);
    if (!json_is_string(v))
        return field_wrong_type(c->e, c->name, "a string", v);
    p->chat_template = params_json_str(v);
    return true;
}

static bool parse_reasoning_effort(struct params *p, const json_t *v, const struct field_context *c)
{
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    for (size_t i = 0; json_is_string(v) && i < sizeof words / sizeof *words; i++)
        if (strcmp(json_string_value(v), words[i]) == 0) {
            p->reasoning_effort = params_json_str(v);
            return true;
        }
    return api_error_set(c->e, 400, c->name,
                         "%s must be one of none, minimal, low, medium, high, xhigh, max.",
                         c->name);
}

static const struct field rows[] = {
    ROW_STR("model", model, BOTH | EMBEDDINGS | ANTHROPIC | TOKENIZE | DETOKENIZE, 512),
    {ROW("prompt", FIELD_JSON, TEXT), .offset = AT(prompt),
     .want = JSON_NULL, /* string or list: openai_completions.c looks into it */
     .why = "a string, strings, ids, or lists of ids; up to 1024"},
    {ROW("prompt", FIELD_JSON, TOKENIZE), .offset = AT(prompt), .want = JSON_STRING,
     .why = "a text; or messages"},
    {ROW("tokens", FIELD_JSON, DETOKENIZE), .offset = AT(prompt), .want = JSON_ARRAY, .why = "ids"},
    ROW_JSON("messages", messages, CHAT | ANTHROPIC | TOKENIZE, JSON_ARRAY),
    ROW_JSON("documents", documents, CHAT, JSON_ARRAY),
    ROW_CUSTOM(chat_template, CHAT | TOKENIZE, "with --trust-request-chat-template"),
    ROW_JSON("chat_template_kwargs", template_kwargs, CHAT | ANTHROPIC | TOKENIZE, JSON_OBJECT),
    ROW_CUSTOM(reasoning_effort, CHAT, "what the template makes of it; none turns thinking off"),
    ROW_BOOL(add_generation_prompt, CHAT | TOKENIZE),
    ROW_BOOL(continue_final_message, CHAT | TOKENIZE),
    ROW_BOOL(add_special_tokens, BOTH | EMBEDDINGS | TOKENIZE),
    ROW_INT("truncate_prompt_tokens", truncate_prompt_tokens, BOTH | EMBEDDINGS, -1, 1 << 30),
    ROW_CUSTOM(truncation_side, BOTH | EMBEDDINGS, "left keeps the end, right the beginning"),
    ROW_STR("cache_salt", cache_salt, BOTH | EMBEDDINGS, 128),
    ROW_INT("priority", priority, BOTH | EMBEDDINGS, INT_MIN, INT_MAX),
    {ROW("timeout", FIELD_FLOAT, BOTH | EMBEDDINGS), .offset = AT(timeout_s),
     .max = PARAMS_MAX_TIMEOUT_S, .above_min = true, .why = "seconds"},
    ROW_CUSTOM(request_id, BOTH | EMBEDDINGS, "the answer's id, behind cmpl- or chatcmpl-"),
};

FIELD_TABLE(prompt);
