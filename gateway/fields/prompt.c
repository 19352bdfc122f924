/* Defines the fields of the prompt or messages, and the fields that control how these become
 * ids. */
#include <string.h>

#include "common/json/text.h"
#include "gateway/fields/rows.h"

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
        return api_error_set(
            c->e, 400, c->name,
            "%s must have 1 to %u characters, each a letter, a digit or one of - _ . :", c->name,
            PARAMS_MAX_REQUEST_ID);
    p->request_id = s;
    return true;
}

static bool parse_chat_template(struct params *p, const json_t *v, const struct field_context *c)
{
    if (!c->policy->trust_chat_template)
        return api_error_set(c->e, 400, c->name,
                             "%s is not accepted in requests: this server was started without "
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

/* Reads variables for the template. Fields with rows of their own are refused among them. A
 * template among the variables would bypass --trust-request-chat-template, and other fields
 * would be lost silently. */
static bool parse_chat_template_kwargs(struct params *p, const json_t *v,
                                       const struct field_context *c)
{
    static const char *const fields[] = {"messages", "chat_template", "tokenize"};
    if (!json_text_is_object(v))
        return field_wrong_type(c->e, c->name, "an object", v);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *given = json_object_get(v, fields[i]);
        if (given && !json_is_null(given))
            return api_error_set(c->e, 400, c->name, "%s must not contain %s.", c->name, fields[i]);
    }
    p->template_kwargs = (json_t *)v;
    return true;
}

/* Reads cache_salt. An empty salt is refused: it would share the cache with all requests that
 * have no salt. */
static bool parse_cache_salt(struct params *p, const json_t *v, const struct field_context *c)
{
    if (!json_is_string(v))
        return field_wrong_type(c->e, c->name, "a string", v);
    struct str s = params_json_str(v);
    if (s.len == 0 || s.len > PARAMS_MAX_CACHE_SALT)
        return api_error_set(c->e, 400, c->name, "%s must have 1 to %u bytes, got %zu.", c->name,
                             PARAMS_MAX_CACHE_SALT, s.len);
    p->cache_salt = s;
    return true;
}

static const struct field rows[] = {
    ROW_STR("model", model, GENERATES | EMBEDDINGS | ANTHROPIC | TOKENIZE | DETOKENIZE, 512),
    {ROW("prompt", FIELD_JSON, TEXT), .offset = AT(prompt),
     .want = JSON_NULL, /* any kind: openai_completions.c accepts a string or a list */
     .why = "a string, strings, ids, or lists of ids; up to 1024"},
    {ROW("prompt", FIELD_JSON, TOKENIZE), .offset = AT(prompt), .want = JSON_STRING,
     .why = "a text; or messages"},
    {ROW("tokens", FIELD_JSON, DETOKENIZE), .offset = AT(prompt), .want = JSON_ARRAY, .why = "ids"},
    ROW_JSON("messages", messages, CHAT | ANTHROPIC | TOKENIZE, JSON_ARRAY),
    ROW_JSON("documents", documents, CHAT, JSON_ARRAY),
    ROW_CUSTOM(chat_template, CHAT | RESPONSES | TOKENIZE, "with --trust-request-chat-template"),
    ROW_CUSTOM(chat_template_kwargs, CHAT | RESPONSES | ANTHROPIC | TOKENIZE,
               "an object of the template's variables"),
    ROW_CUSTOM(reasoning_effort, CHAT, "passed to the chat template; none turns thinking off"),
    ROW_BOOL(add_generation_prompt, CHAT | TOKENIZE),
    ROW_BOOL(continue_final_message, CHAT | TOKENIZE),
    ROW_BOOL(add_special_tokens, BOTH | EMBEDDINGS | TOKENIZE),
    ROW_INT("truncate_prompt_tokens", truncate_prompt_tokens, GENERATES | EMBEDDINGS, -1, 1 << 30),
    ROW_CUSTOM(truncation_side, GENERATES | EMBEDDINGS, "left keeps the end, right the beginning"),
    ROW_CUSTOM(cache_salt, GENERATES | EMBEDDINGS | MESSAGES, "a string of 1 to 128 bytes"),
    ROW_INT("priority", priority, GENERATES | EMBEDDINGS, INT_MIN, INT_MAX),
    {ROW("timeout", FIELD_FLOAT, GENERATES | EMBEDDINGS), .offset = AT(timeout_s),
     .max = PARAMS_MAX_TIMEOUT_S, .above_min = true, .why = "seconds"},
    ROW_CUSTOM(request_id, GENERATES | EMBEDDINGS,
               "the answer's id, after cmpl-, chatcmpl- or resp_"),
};

FIELD_TABLE(prompt);
