/* How it is answered. */
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
    const json_t *usage = json_object_get(v, "include_usage");
    const json_t *each = json_object_get(v, "continuous_usage_stats");
    if (usage && !json_is_null(usage) &&
        !field_read_bool(usage, "stream_options.include_usage", &p->include_usage, e))
        return false;
    if (each && !json_is_null(each) &&
        !field_read_bool(each, "stream_options.continuous_usage_stats", &p->continuous_usage_stats,
                         e))
        return false;
    p->continuous_usage_stats = p->continuous_usage_stats && p->include_usage;
    return true;
}

static const struct field rows[] = {
    ROW_BOOL(stream, BOTH),
    ROW_CUSTOM(stream_options, BOTH, "include_usage, continuous_usage_stats"),
    ROW_U32("stream_interval", stream_interval, BOTH, 1, 1 << 20),
    ROW_BOOL(echo, TEXT),
    ROW_INT("logprobs", logprobs, TEXT, 0, PARAMS_MAX_LOGPROBS),
    {ROW("logprobs", FIELD_BOOL, CHAT), .offset = AT(want_logprobs)},
    ROW_INT("top_logprobs", logprobs, CHAT, 0, PARAMS_MAX_LOGPROBS),
    ROW_BOOL(return_token_ids, BOTH),
    ROW_BOOL(return_tokens_as_token_ids, BOTH),
    ROW_BOOL(return_prompt_text, BOTH),
    ROW_BOOL(skip_special_tokens, BOTH),
    ROW_BOOL(include_stop_str_in_output, BOTH),
    ROW_BOOL(include_reasoning, CHAT),
};

FIELD_TABLE(answer);
