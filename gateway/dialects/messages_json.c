/* Writes answers of /v1/messages: one message of content blocks, or a stream of Anthropic's
 * events with a start and an end for each block. Errors have Anthropic's form. answer_writer.c
 * calls the functions in `dialect_messages` with deltas. These functions append to a buffer.
 * `dialect_state` keeps the open block. At most one block is open, and each block is ended
 * before the next. Any thread may call `whole`. The loop calls all other functions. */
#include "gateway/dialects/messages.h"

#include <string.h>

#include "common/json/text.h"
#include "gateway/dialects/dialects.h"
#include "gateway/dialects/full_usage.h"
#include "gateway/dialects/openai_json.h"

static void begin_event(struct strbuf *out, const char *type)
{
    strbuf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void end_event(struct strbuf *out)
{
    strbuf_append_c(out, "}\n\n");
}

/* Appends the usage. Anthropic counts tokens of the prefix cache separately. */
static void append_usage(struct strbuf *out, const struct answer_usage *u)
{
    strbuf_printf(out,
                  "{\"input_tokens\":%llu,\"cache_creation_input_tokens\":0,"
                  "\"cache_read_input_tokens\":%llu,\"output_tokens\":%llu",
                  (unsigned long long)(u->prompt_tokens - u->cached_tokens),
                  (unsigned long long)u->cached_tokens, (unsigned long long)u->completion_tokens);
    full_usage_append(out, u);
    strbuf_append_c(out, "}");
}

static void append_stop(struct strbuf *out, const struct answer_delta *d)
{
    const char *reason = d->finish == ANSWER_LENGTH       ? "max_tokens"
                         : d->finish == ANSWER_TOOL_CALLS ? "tool_use"
                         : d->stop_string.ptr             ? "stop_sequence"
                                                          : "end_turn";
    strbuf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (d->stop_string.ptr)
        strbuf_append_json(out, d->stop_string);
    else
        strbuf_append_c(out, "null");
}

/* Appends the beginning of a message,
 * {"id":…,"type":"message","role":"assistant","model":…,"content":, and nothing after it. */
static void append_head(struct strbuf *out, const struct answer_shape *a)
{
    strbuf_printf(out,
                  "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", a->id);
    strbuf_append_json(out, a->model);
    strbuf_append_c(out, ",\"content\":");
}

/* ---- streams ---- */

static void write_start(struct strbuf *out, const struct answer_shape *a,
                        const struct answer_delta *d)
{
    const struct answer_usage u = {.prompt_tokens = d->usage.prompt_tokens,
                                   .cached_tokens = d->usage.cached_tokens};
    begin_event(out, "message_start");
    strbuf_append_c(out, ",\"message\":");
    append_head(out, a);
    strbuf_append_c(out, "[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    append_usage(out, &u);
    strbuf_append_c(out, "}");
    end_event(out);
}

static void close_block(struct strbuf *out, struct dialect_state *s)
{
    if (!s->block_is_open)
        return;
    begin_event(out, "content_block_stop");
    strbuf_printf(out, ",\"index\":%u", s->n_blocks++);
    end_event(out);
    s->block_is_open = false;
}

static void open_block(struct strbuf *out, struct dialect_state *s, const struct answer_part *p)
{
    close_block(out, s);
    begin_event(out, "content_block_start");
    strbuf_printf(out, ",\"index\":%u,\"content_block\":{\"type\":", s->n_blocks);
    if (p->kind == ANSWER_REASONING) {
        strbuf_append_c(out, "\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else if (p->kind == ANSWER_CONTENT) {
        strbuf_append_c(out, "\"text\",\"text\":\"\"}");
    } else {
        strbuf_append_c(out, "\"tool_use\",\"id\":");
        strbuf_append_json(out, p->id);
        strbuf_append_c(out, ",\"name\":");
        strbuf_append_json(out, p->name);
        strbuf_append_c(out, ",\"input\":{}}");
    }
    end_event(out);
    s->block_is_open = true;
    s->open_block = p->kind;
}

static void write_part(struct strbuf *out, struct dialect_state *s, const struct answer_part *p)
{
    static const char *const deltas[ANSWER_PART_KIND_COUNT] = {
        [ANSWER_REASONING] = "\"thinking_delta\",\"thinking\":",
        [ANSWER_CONTENT] = "\"text_delta\",\"text\":",
        [ANSWER_ARGUMENTS] = "\"input_json_delta\",\"partial_json\":",
    };
    bool goes_on = s->block_is_open && s->open_block == p->kind;
    if (p->kind == ANSWER_CALL || (p->kind != ANSWER_ARGUMENTS && !goes_on))
        open_block(out, s, p);
    if (p->text.len == 0 || !deltas[p->kind])
        return;
    begin_event(out, "content_block_delta");
    strbuf_printf(out, ",\"index\":%u,\"delta\":{\"type\":%s", s->n_blocks, deltas[p->kind]);
    strbuf_append_json(out, p->text);
    strbuf_append_c(out, "}");
    end_event(out);
}

static void write_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                        const struct answer_delta *d)
{
    if (d->first)
        write_start(out, a, d);
    for (uint32_t i = 0; i < d->n_parts; i++)
        if (d->parts[i].kind == ANSWER_CALL || d->parts[i].text.len > 0)
            write_part(out, s, &d->parts[i]);
    if (!d->end)
        return;
    close_block(out, s);
    begin_event(out, "message_delta");
    strbuf_append_c(out, ",\"delta\":{");
    append_stop(out, d);
    strbuf_append_c(out, "},\"usage\":");
    append_usage(out, &d->usage);
    end_event(out);
}

static void write_close(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                        const struct answer_usage *u)
{
    begin_event(out, "message_stop");
    end_event(out);
}

/* ---- answers in one piece ---- */

/* Appends a call's arguments as the model wrote them, if they are an object. Incomplete
 * arguments are not an object, so {} is written. */
static void append_input(struct strbuf *out, struct str text)
{
    json_t *v = json_text_load(text, JSON_ALLOW_NUL, NULL);
    if (json_is_object(v))
        strbuf_append_str(out, text);
    else
        strbuf_append_c(out, "{}");
    json_decref(v);
}

/* Appends the call at parts[i] with its arguments, which are the parts after it. Returns the
 * number of those parts. */
static uint32_t append_call(struct strbuf *out, const struct answer_delta *d, uint32_t i)
{
    struct strbuf arguments;
    uint32_t n = 0;
    strbuf_init(&arguments, 0);
    for (; i + n + 1 < d->n_parts && d->parts[i + n + 1].kind == ANSWER_ARGUMENTS; n++)
        strbuf_append_str(&arguments, d->parts[i + n + 1].text);
    strbuf_append_c(out, "{\"type\":\"tool_use\",\"id\":");
    strbuf_append_json(out, d->parts[i].id);
    strbuf_append_c(out, ",\"name\":");
    strbuf_append_json(out, d->parts[i].name);
    strbuf_append_c(out, ",\"input\":");
    append_input(out, strbuf_str(&arguments));
    strbuf_append_c(out, "}");
    strbuf_fini(&arguments);
    return n;
}

static void append_blocks(struct strbuf *out, const struct answer_delta *d)
{
    const char *comma = "";
    for (uint32_t i = 0; i < d->n_parts; i++) {
        const struct answer_part *p = &d->parts[i];
        if (p->kind != ANSWER_CALL && p->text.len == 0)
            continue;
        strbuf_append_c(out, comma);
        comma = ",";
        if (p->kind == ANSWER_CALL) {
            i += append_call(out, d, i);
            continue;
        }
        bool thinks = p->kind == ANSWER_REASONING;
        strbuf_append_c(out, thinks ? "{\"type\":\"thinking\",\"thinking\":"
                                    : "{\"type\":\"text\",\"text\":");
        strbuf_append_json(out, p->text);
        strbuf_append_c(out, thinks ? ",\"signature\":\"\"}" : "}");
    }
}

static void write_whole(struct strbuf *out, const struct answer_shape *a,
                        const struct answer_delta *d, uint32_t n, const struct answer_usage *u)
{
    append_head(out, a);
    strbuf_append_c(out, "[");
    append_blocks(out, d);
    strbuf_append_c(out, "],");
    append_stop(out, d);
    strbuf_append_c(out, ",\"usage\":");
    append_usage(out, u);
    strbuf_append_c(out, "}");
}

static void write_count(struct strbuf *out, const struct answer_shape *a)
{
    strbuf_printf(out, "{\"input_tokens\":%u}", a->prompts->items[0].n_ids);
}

/* ---- errors ---- */

static const char *error_type(int http_status)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {
        {400, "invalid_request_error"}, {401, "authentication_error"}, {403, "permission_error"},
        {404, "not_found_error"},       {413, "request_too_large"},    {429, "rate_limit_error"},
        {503, "overloaded_error"},      {504, "timeout_error"},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == http_status)
            return types[i].type;
    return "api_error";
}

static void write_error(struct strbuf *out, const struct api_error *e, bool in_stream)
{
    if (in_stream)
        begin_event(out, "error");
    else
        strbuf_append_c(out, "{\"type\":\"error\"");
    strbuf_printf(out, ",\"error\":{\"type\":\"%s\",\"message\":", error_type(e->http_status));
    strbuf_append_json(out, str_from(e->message));
    if (e->code && strcmp(e->code, API_THREAD_NOT_FOUND) == 0)
        strbuf_append_c(out, ",\"details\":{\"error_code\":\"" API_THREAD_NOT_FOUND "\"}");
    strbuf_append_c(out, "}");
    if (in_stream)
        end_event(out);
    else
        strbuf_append_c(out, "}");
}

const struct dialect dialect_messages = {
    .name = "messages",
    .id_prefix = "msg_",
    .prompt_field = "messages",
    .kind = API_MESSAGES,
    .call_prefix = "toolu_",
    .read = messages_read,
    .stream_type = openai_stream_type,
    .keep_alive = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    .delta = write_delta,
    .close = write_close,
    .whole = write_whole,
    .error = write_error,
};

const struct dialect dialect_count_tokens = {
    .name = "count_tokens",
    .id_prefix = "msg_",
    .prompt_field = "messages",
    .kind = API_COUNT_TOKENS,
    .read = messages_count_read,
    .answer = write_count,
    .error = write_error,
};
