/* How it is answered. */
#include <stdio.h>
#include <string.h>

#include "gateway/fields.h"

static bool parse_stream_options(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *name = c->name;
    struct api_error *e = c->e;
    if (!json_is_object(v))
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
        /* padding against an ear on the line: TLS's concern */
        if (!at && strcmp(key, "include_obfuscation") != 0 && c->policy->unknown == UNKNOWN_REFUSE)
            return api_error_set(e, 400, full, "There is no field `%s`: leave it out.", full);
    }
    p->continuous_usage_stats = p->continuous_usage_stats && p->include_usage;
    return true;
}

static const struct field rows[] = {
    ROW_BOOL(stream, BOTH | MESSAGES),
    ROW_CUSTOM(stream_options, BOTH, "include_usage, continuous_usage_stats"),
    ROW_U32("stream_interval", stream_interval, BOTH, 1, 1 << 20),
    ROW_BOOL(echo, TEXT),
    ROW_INT("logprobs", logprobs, TEXT, 0, PARAMS_MAX_LOGPROBS),
    {ROW("logprobs", FIELD_BOOL, CHAT), .offset = AT(want_logprobs)},
    ROW_INT("top_logprobs", logprobs, CHAT, 0, PARAMS_MAX_LOGPROBS),
    ROW_BOOL(return_token_ids, BOTH),
    ROW_BOOL(return_token_strs, TOKENIZE),
    ROW_BOOL(return_tokens_as_token_ids, BOTH),
    ROW_BOOL(return_prompt_text, BOTH),
    ROW_BOOL(skip_special_tokens, BOTH),
    ROW_BOOL(include_stop_str_in_output, BOTH),
    ROW_BOOL(include_reasoning, CHAT),
};

FIELD_TABLE(answer);
