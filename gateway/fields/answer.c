/* Defines the fields about the form of the answer. */
#include <stdio.h>
#include <string.h>

#include "common/json/text.h"
#include "gateway/fields/rows.h"

static bool parse_stream_options(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *name = c->name;
    struct api_error *e = c->e;
    if (!json_text_is_object(v))
        return field_wrong_type(e, name, "an object", v);
    if (!json_is_true(json_object_get(p->body, "stream")))
        return api_error_set(e, 400, name,
                             "Stream options can only be defined when `stream=True`.");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)v, key, value)
    {
        bool *at = strcmp(key, "include_usage") == 0            ? &p->include_usage
                   : strcmp(key, "continuous_usage_stats") == 0 ? &p->continuous_usage_stats
                                                                : NULL;
        char full[64];
        snprintf(full, sizeof full, "%s.%.40s", name, key);
        if (json_is_null(value))
            continue;
        if (at && !field_read_bool(value, full, at, e))
            return false;
        /* include_obfuscation requests padding against eavesdroppers, but TLS protects against
         * them */
        if (!at && strcmp(key, "include_obfuscation") != 0 && !field_unknown_member(c, name, key))
            return false;
    }
    p->continuous_usage_stats = p->continuous_usage_stats && p->include_usage;
    return true;
}

#define ROW_LOGPROBS(nm, field, k)                                                                 \
    {                                                                                              \
        ROW(nm, FIELD_INT, k), .offset = AT(field), .max = PARAMS_MAX_LOGPROBS,                    \
                               .why = "at most --max-logprobs, 20 where that is not given"         \
    }

static const struct field rows[] = {
    ROW_BOOL(stream, GENERATES | MESSAGES),
    ROW_CUSTOM(stream_options, BOTH, "include_usage, continuous_usage_stats"),
    ROW_U32("stream_interval", stream_interval, GENERATES, 1, 1 << 20),
    ROW_BOOL(echo, TEXT),
    ROW_LOGPROBS("logprobs", logprobs, TEXT),
    {ROW("logprobs", FIELD_BOOL, CHAT), .offset = AT(want_logprobs)},
    ROW_LOGPROBS("top_logprobs", logprobs, CHAT),
    {ROW("top_logprobs", FIELD_INT, RESPONSES), .offset = AT(logprobs), .max = PARAMS_MAX_LOGPROBS,
     .why = "at most --max-logprobs; with message.output_text.logprobs in include"},
    ROW_LOGPROBS("prompt_logprobs", prompt_logprobs, BOTH),
    ROW_BOOL(return_token_ids, BOTH),
    ROW_BOOL(return_token_strs, TOKENIZE),
    ROW_BOOL(return_tokens_as_token_ids, GENERATES),
    ROW_BOOL(return_prompt_text, BOTH),
    ROW_BOOL(skip_special_tokens, GENERATES),
    ROW_BOOL(include_stop_str_in_output, GENERATES),
    ROW_BOOL(include_reasoning, CHAT | RESPONSES),
};

FIELD_TABLE(answer);
