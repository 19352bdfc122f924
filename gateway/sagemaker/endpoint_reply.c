/* Sends replies in the form of SageMaker's runtime, which usually runs between the client and a
 * container.
 * routes/sagemaker.c chooses one of two sets of reply functions; serving calls them. Answers are
 * sent unchanged, or in event-stream messages. The container's errors are wrapped in a
 * ModelError.
 * A reply is a struct http_request and owns nothing else. Each answer is sent once. `end` or
 * `drop` ends a stream. Only the loop thread calls these functions. */
#include "gateway/sagemaker/endpoint_reply.h"

#include <stdio.h>

#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "gateway/request/reply.h"
#include "gateway/sagemaker/event_stream.h"

#define JSON_TYPE "application/json"

enum { MODEL_ERROR = 424, THROTTLED = 429 };

/* SDKs look for an error's name in the header `ERROR_TYPE` first, then in the body. */
#define ERROR_TYPE "x-amzn-ErrorType"
#define VARIANT    "x-Amzn-Invoked-Production-Variant", "AllTraffic"

static void append_refusal(struct strbuf *out, const char *type, const char *text)
{
    strbuf_printf(out, "{\"__type\":\"%s\",\"code\":\"%s\",\"Message\":", type, type);
    strbuf_append_json(out, str_from(text));
    strbuf_append_c(out, "}");
}

void endpoint_refuse(struct http_request *r, int status, const char *type, const char *text)
{
    const struct http_header_kv header = {ERROR_TYPE, type};
    struct strbuf b;
    strbuf_init(&b, 0);
    append_refusal(&b, type, text);
    http_respond(r, status, JSON_TYPE, strbuf_str(&b), &header, 1);
    strbuf_fini(&b);
}

static const char *type_of(int status)
{
    switch (status) {
    case 401:
    case 403:
        return "AccessDeniedException";
    case THROTTLED:
        return "ThrottlingException";
    default:
        return status < 500 ? "ValidationError" : "InternalFailure";
    }
}

static void refusal(struct strbuf *out, const struct api_error *e, bool in_stream)
{
    append_refusal(out, type_of(e->http_status), e->message);
}

const struct dialect dialect_endpoint = {.name = "endpoint", .error = refusal};

/* ---- in one piece ---- */

static void attach(void *reply, struct api_request *r)
{
    http_set_user(reply, r);
}

/* Answers with the container's error, whose status and body are members of the answer. */
static void respond_model_error(struct http_request *r, int status, struct str body)
{
    const struct http_header_kv header = {ERROR_TYPE, "ModelError"};
    struct strbuf text, b;
    strbuf_init(&text, 0);
    strbuf_init(&b, 0);
    strbuf_printf(&text, "Received %s error (%d) from model with message \"",
                  status < 500 ? "client" : "server", status);
    strbuf_append_str(&text, body);
    strbuf_append_c(&text, "\".");
    strbuf_append_c(&b, "{\"ErrorCode\":\"");
    strbuf_append_c(&b, status < 500 ? "CLIENT" : "SERVER");
    strbuf_printf(&b, "_ERROR_FROM_MODEL\",\"LogStreamArn\":\"\",\"OriginalStatusCode\":%d,",
                  status);
    strbuf_append_c(&b, "\"OriginalMessage\":");
    strbuf_append_json(&b, body);
    strbuf_append_c(&b, ",\"Message\":");
    strbuf_append_json(&b, strbuf_str(&text));
    strbuf_append_c(&b, "}");
    http_respond(r, MODEL_ERROR, JSON_TYPE, strbuf_str(&b), &header, 1);
    strbuf_fini(&text);
    strbuf_fini(&b);
}

/* Answers that a key's limit was reached. The limit is the gateway's and not the model's, so
 * SDKs wait and retry. */
static void respond_throttled(struct http_request *r, struct str body, uint32_t retry_after_s)
{
    char seconds[16];
    struct strbuf text;
    snprintf(seconds, sizeof seconds, "%u", retry_after_s);
    if (retry_after_s)
        http_add_header(r, "Retry-After", seconds);
    strbuf_init(&text, 0);
    strbuf_append_str(&text, body);
    endpoint_refuse(r, THROTTLED, type_of(THROTTLED), strbuf_str(&text).ptr);
    strbuf_fini(&text);
}

static bool respond_error(struct http_request *r, int status, struct str body,
                          uint32_t retry_after_s)
{
    if (status < 300)
        return false;
    if (status == THROTTLED)
        respond_throttled(r, body, retry_after_s);
    else
        respond_model_error(r, status, body);
    return true;
}

static void whole_respond(void *reply, int status, struct str json, uint32_t retry_after_s)
{
    const struct http_header_kv header = {VARIANT};
    if (!respond_error(reply, status, json, retry_after_s))
        http_respond(reply, status, JSON_TYPE, json, &header, 1);
}

/* Begins a stream for InvokeEndpoint: the model's bytes without framing. */
static void whole_begin(void *reply, const char *content_type)
{
    static const struct http_header_kv headers[] = {
        {VARIANT}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    http_stream_begin(reply, 200, content_type, headers, 3);
}

static size_t room(void *reply)
{
    return http_stream_room(reply);
}

static void whole_write(void *reply, struct str chunk)
{
    http_stream_write(reply, chunk);
}

static void end(void *reply)
{
    http_stream_end(reply);
}

#define TIMED_OUT "Your invocation timed out while waiting for a response from the model."

static void refuse_late(struct http_request *r)
{
    respond_model_error(r, 504, STR(TIMED_OUT));
}

static void add_header(void *reply, const char *name, const char *value)
{
    http_add_header(reply, name, value);
}

static char *take_body(void *reply)
{
    return http_take_body(reply);
}

static void release_body(void *reply)
{
    http_release_body(reply);
}

static enum status hold(void *reply, uint64_t bytes)
{
    return http_hold(reply, bytes);
}

static void whole_drop(void *reply, bool begun)
{
    if (begun)
        http_drop(reply);
    else
        refuse_late(reply);
}

const struct reply_ops endpoint_whole_ops = {
    .attach = attach,
    .respond = whole_respond,
    .begin = whole_begin,
    .room = room,
    .write = whole_write,
    .end = end,
    .drop = whole_drop,
    .add_header = add_header,
    .take_body = take_body,
    .release_body = release_body,
    .hold = hold,
};

/* ---- in events ---- */

#define CONTENT_TYPE "X-Amzn-SageMaker-Content-Type"

static void stream_begin(void *reply, const char *content_type)
{
    const struct http_header_kv headers[] = {{CONTENT_TYPE, content_type},
                                             {VARIANT},
                                             {"Cache-Control", "no-cache"},
                                             {"X-Accel-Buffering", "no"}};
    http_stream_begin(reply, 200, EVENT_STREAM_TYPE, headers, 4);
}

static void stream_write(void *reply, struct str chunk)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    event_stream_payload(&b, chunk);
    http_stream_write(reply, strbuf_str(&b));
    strbuf_fini(&b);
}

static void stream_respond(void *reply, int status, struct str json, uint32_t retry_after_s)
{
    static const struct http_header_kv headers[] = {{CONTENT_TYPE, JSON_TYPE}, {VARIANT}};
    struct strbuf b;
    if (respond_error(reply, status, json, retry_after_s))
        return;
    strbuf_init(&b, 0);
    event_stream_payload(&b, json);
    http_respond(reply, 200, EVENT_STREAM_TYPE, strbuf_str(&b), headers, 2);
    strbuf_fini(&b);
}

static void stream_drop(void *reply, bool begun)
{
    struct strbuf b;
    if (!begun) {
        refuse_late(reply);
        return;
    }
    strbuf_init(&b, 0);
    event_stream_exception(&b, "ModelStreamError",
                           STR("{\"ErrorCode\":\"ModelInvocationTimeExceeded\",\"Message\":"
                               "\"" TIMED_OUT "\"}"));
    http_stream_write(reply, strbuf_str(&b));
    strbuf_fini(&b);
    http_stream_end(reply);
}

const struct reply_ops endpoint_stream_ops = {
    .attach = attach,
    .respond = stream_respond,
    .begin = stream_begin,
    .room = room,
    .write = stream_write,
    .end = end,
    .drop = stream_drop,
    .add_header = add_header,
    .take_body = take_body,
    .release_body = release_body,
    .hold = hold,
};
