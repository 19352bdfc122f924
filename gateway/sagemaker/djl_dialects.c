/* Defines DJL's dialects: the reader and the writers for each form and schema. Chat has OpenAI's
 * JSON, one JSON text per line unless the stream is SSE. */
#include "gateway/sagemaker/djl_dialects.h"

#include <string.h>

#include "gateway/dialects/dialects.h"
#include "gateway/dialects/sse.h"
#include "gateway/sagemaker/djl.h"
#include "gateway/sagemaker/djl_error.h"
#include "gateway/sagemaker/djl_json.h"
#include "gateway/sagemaker/djl_static.h"

#define LINES "application/jsonlines"

static const char *lines_type(const struct params *p)
{
    return LINES;
}

static const char *sse_type(const struct params *p)
{
    return SSE_CONTENT_TYPE;
}

/* Appends OpenAI's events as lines, without "data: " and without [DONE]. JSON contains no line
 * ends. */
static void append_lines(struct strbuf *out, struct str events)
{
    static const size_t begin = sizeof "data: " - 1;
    while (events.len > begin) {
        const char *end = memchr(events.ptr, '\n', events.len);
        size_t n = end ? (size_t)(end - events.ptr) : events.len;
        struct str json = {events.ptr + begin, n - begin};
        if (!str_eq_c(json, "[DONE]")) {
            strbuf_append_str(out, json);
            strbuf_append_c(out, "\n");
        }
        n += n + 2 <= events.len ? 2 : events.len - n;
        events = (struct str){events.ptr + n, events.len - n};
    }
}

static void openai_delta_as_lines(const struct dialect *d, struct strbuf *out,
                                  const struct answer_shape *a, struct dialect_state *s,
                                  const struct answer_delta *delta)
{
    struct strbuf events;
    strbuf_init(&events, 0);
    d->delta(&events, a, s, delta);
    append_lines(out, strbuf_str(&events));
    strbuf_fini(&events);
}

static void openai_close_as_lines(const struct dialect *d, struct strbuf *out,
                                  const struct answer_shape *a, struct dialect_state *s,
                                  const struct answer_usage *u)
{
    struct strbuf events;
    strbuf_init(&events, 0);
    d->close(&events, a, s, u);
    append_lines(out, strbuf_str(&events));
    strbuf_fini(&events);
}

static void chat_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                       const struct answer_delta *d)
{
    if (a->params->djl.sse)
        dialect_chat.delta(out, a, s, d);
    else
        openai_delta_as_lines(&dialect_chat, out, a, s, d);
}

static void chat_close(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                       const struct answer_usage *u)
{
    if (a->params->djl.sse)
        dialect_chat.close(out, a, s, u);
    else
        openai_close_as_lines(&dialect_chat, out, a, s, u);
}

static void chat_whole(struct strbuf *out, const struct answer_shape *a,
                       const struct answer_delta *d, uint32_t n, const struct answer_usage *u)
{
    dialect_chat.whole(out, a, d, n, u);
    strbuf_append_c(out, a->params->djl.is_async ? "\n" : "");
}

static void prompt_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                         const struct answer_delta *d)
{
    openai_delta_as_lines(&dialect_completions, out, a, s, d);
}

static void prompt_close(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                         const struct answer_usage *u)
{
    openai_close_as_lines(&dialect_completions, out, a, s, u);
}

static void prompt_whole(struct strbuf *out, const struct answer_shape *a,
                         const struct answer_delta *d, uint32_t n, const struct answer_usage *u)
{
    dialect_completions.whole(out, a, d, n, u);
    strbuf_append_c(out, "\n");
}

static bool read_rolling(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
static bool read_tgi(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
static bool read_static(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
static bool read_async(const struct prepare_model *m, json_t *owned_body, struct prepared *out);

/* `COMMON` has no keep-alive for silent streams, because clients expect JSON in every line. */
#define COMMON(label, field) .name = label, .id_prefix = "chatcmpl-", .prompt_field = field
#define ROLLING              .read = read_rolling, .status = djl_rolling_status
#define ASYNC                                                                                      \
    .read = read_async, .status = djl_async_status, .error = djl_async_error,                      \
    .stream_type = lines_type
#define INPUTS                                                                                     \
    .kind = API_COMPLETIONS, .repeats_text = true, .delta = djl_delta, .close = djl_close,         \
    .whole = djl_whole
#define MESSAGES                                                                                   \
    .kind = API_CHAT, .call_prefix = "chatcmpl-tool-", .delta = chat_delta, .close = chat_close,   \
    .whole = chat_whole

const struct dialect dialect_djl = {
    COMMON("djl", "inputs"), ROLLING, INPUTS, .stream_type = lines_type, .error = djl_rolling_error,
};
static const struct dialect djl_sse = {
    COMMON("djl", "inputs"),
    ROLLING,
    INPUTS,
    .stream_type = sse_type,
    .keep_alive = SSE_KEEP_ALIVE,
    .error = djl_rolling_error_sse,
};
static const struct dialect djl_chat = {
    COMMON("djl", "messages"),  ROLLING, MESSAGES, .stream_type = lines_type,
    .error = djl_rolling_error,
};
static const struct dialect djl_chat_sse = {
    COMMON("djl", "messages"),
    ROLLING,
    MESSAGES,
    .stream_type = sse_type,
    .keep_alive = SSE_KEEP_ALIVE,
    .error = djl_rolling_error_sse,
};
/* A stream is SSE in this form (djl_sse), so this dialect answers only in one piece. */
const struct dialect dialect_djl_tgi = {
    COMMON("djl", "inputs"),   .read = read_tgi,           .status = djl_rolling_status, INPUTS,
    .stream_type = lines_type, .error = djl_rolling_error,
};
const struct dialect dialect_djl_static = {
    COMMON("djl", "inputs"), .read = read_static,       .status = djl_rolling_status,
    .kind = API_COMPLETIONS, .stream_type = lines_type, .delta = djl_static_delta,
    .close = djl_close,      .whole = djl_static_whole, .error = djl_static_error,
};
const struct dialect dialect_djl_async = {COMMON("djl", "inputs"), ASYNC, INPUTS};
static const struct dialect djl_async_chat = {COMMON("djl", "messages"), ASYNC, MESSAGES};
static const struct dialect djl_async_prompt = {
    COMMON("djl", "prompt"), ASYNC,
    .kind = API_COMPLETIONS, .delta = prompt_delta,
    .close = prompt_close,   .whole = prompt_whole,
};

static const struct djl_answers answers = {.sse = &djl_sse,
                                           .chat = &djl_chat,
                                           .chat_sse = &djl_chat_sse,
                                           .async_chat = &djl_async_chat,
                                           .async_prompt = &djl_async_prompt};

static bool read_rolling(const struct prepare_model *m, json_t *owned_body, struct prepared *out)
{
    return djl_read(DJL_ROLLING, &answers, m, owned_body, out);
}

static bool read_tgi(const struct prepare_model *m, json_t *owned_body, struct prepared *out)
{
    return djl_read(DJL_TGI, &answers, m, owned_body, out);
}

static bool read_static(const struct prepare_model *m, json_t *owned_body, struct prepared *out)
{
    return djl_read(DJL_STATIC, &answers, m, owned_body, out);
}

static bool read_async(const struct prepare_model *m, json_t *owned_body, struct prepared *out)
{
    return djl_read(DJL_ASYNC, &answers, m, owned_body, out);
}
