/* DJL's errors. What is wrong with a request, and what fails before its first token, is 424 with
 * the handler's words; what is refused in front of the model has the front end's, with a class's
 * name. */
#include "gateway/djl.h"
#include "gateway/sse.h"

enum { INVALID = 424 };

static bool is_about_the_request(const struct api_error *e)
{
    return e->http_status == 400 || e->http_status == 404 || e->http_status == 422;
}

/* DJL has no 429 unless it is told so. */
int djl_async_status(const struct api_error *e)
{
    if (is_about_the_request(e))
        return INVALID;
    return e->http_status == 429 ? 503 : e->http_status;
}

int djl_rolling_status(const struct api_error *e)
{
    return e->http_status == 500 ? INVALID : djl_async_status(e);
}

static const char *type_of(const struct api_error *e, int status)
{
    switch (status) {
    case 401:
        return "UnauthorizedException";
    case 413:
        return "BadRequestException";
    case 503: /* its own queue, or nobody there to work on it */
        return e->http_status == 429 || e->retry_after_s ? "WlmCapacityException" : "WlmException";
    default:
        return "InternalServerException";
    }
}

static void append_front_end(struct strbuf *out, const struct api_error *e, int status)
{
    strbuf_printf(out, "{\n  \"code\": %d,\n  \"type\": \"%s\",\n  \"message\": ", status,
                  type_of(e, status));
    strbuf_append_json(out, str_from(e->message));
    strbuf_append_c(out, "\n}");
}

static void append_handler(struct strbuf *out, int status, const char *before, const char *text)
{
    struct strbuf all;
    strbuf_init(&all, 0);
    strbuf_printf(&all, "%s%s", before, text);
    strbuf_printf(out, "{\"code\":%d,\"error\":", status);
    strbuf_append_json(out, strbuf_str(&all));
    strbuf_append_c(out, "}");
    strbuf_fini(&all);
}

static void append_rolling(struct strbuf *out, const struct api_error *e, bool in_stream)
{
    int status = djl_rolling_status(e);
    if (is_about_the_request(e))
        append_handler(out, status,
                       "Input Parsing failed. Ensure that the request payload is valid. ",
                       e->message);
    else if (in_stream || status == INVALID)
        append_handler(out, INVALID, "exception occurred during rolling batch inference", "");
    else
        append_front_end(out, e, status);
}

void djl_rolling_error(struct strbuf *out, const struct api_error *e, bool in_stream)
{
    append_rolling(out, e, in_stream);
    strbuf_append_c(out, "\n");
}

void djl_rolling_error_sse(struct strbuf *out, const struct api_error *e, bool in_stream)
{
    if (!in_stream) {
        djl_rolling_error(out, e, false);
        return;
    }
    sse_begin(out);
    append_rolling(out, e, true);
    sse_end(out);
}

void djl_async_error(struct strbuf *out, const struct api_error *e, bool in_stream)
{
    int status = djl_async_status(e);
    if (in_stream) {
        strbuf_append_c(out, "{\"error\":");
        append_handler(out, status, "", e->message);
        strbuf_append_c(out, "}");
    } else if (is_about_the_request(e)) {
        append_handler(out, status, "Input parsing failed: ", e->message);
    } else if (status == 500) {
        append_handler(out, status, "", e->message);
    } else {
        append_front_end(out, e, status);
    }
    strbuf_append_c(out, "\n");
}
