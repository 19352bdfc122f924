/* Writes DJL's errors. An invalid request, or a failure before the first token, gets a 424 in
 * the handler's form. A request that is refused before it reaches the model gets the front end's
 * form, with the name of a Java class. */
#include "gateway/sagemaker/djl_error.h"

#include <string.h>

#include "gateway/dialects/sse.h"

enum { INVALID = 424 };

/* `statuses` is set before the loop starts and constant after that. */
static struct djl_statuses statuses = DJL_STATUSES;

enum status djl_read_statuses(const struct option_list *words, struct djl_statuses *out,
                              struct error *err)
{
    *out = (struct djl_statuses)DJL_STATUSES;
    const struct {
        const char *name;
        int *to;
    } rows[] = {{"bad_request", &out->bad_request},
                {"throttle_error", &out->throttle_error},
                {"wlm_error", &out->wlm_error},
                {"server_error", &out->server_error},
                {"timeout", &out->timeout}};
    for (size_t i = 0; i < words->n_items; i++) {
        const char *word = words->items[i], *value = strchr(word, '=');
        uint64_t n = 0;
        int *to = NULL;
        for (size_t k = 0; value && k < sizeof rows / sizeof *rows; k++)
            if (str_eq_c((struct str){word, (size_t)(value - word)}, rows[k].name))
                to = rows[k].to;
        if (!to || str_to_u64(str_from(value + 1), &n) != STATUS_OK || n < 400 || n > 599)
            return error_set(err, STATUS_INVALID,
                             "--invocations-statuses %s: the form must be NAME=STATUS, where NAME "
                             "is bad_request, throttle_error, wlm_error, server_error or timeout, "
                             "and STATUS is from 400 to 599",
                             word);
        *to = (int)n;
    }
    return STATUS_OK;
}

void djl_set_statuses(const struct djl_statuses *s)
{
    statuses = *s;
}

static bool is_front_end(const struct api_error *e)
{
    return e->code && strcmp(e->code, DJL_FRONT_END) == 0;
}

static bool is_about_the_request(const struct api_error *e)
{
    return !is_front_end(e) &&
           (e->http_status == 400 || e->http_status == 404 || e->http_status == 422);
}

/* Returns true when a key's limit was reached, or a first-token promise was refused. DJL has no
 * such errors, so these clients get a 429, as OpenAI's clients do. */
static bool is_throttled(const struct api_error *e)
{
    return e->http_status == 429 && e->code &&
           (strcmp(e->code, "rate_limit_exceeded") == 0 ||
            strcmp(e->code, API_FIRST_TOKEN_TOO_LATE) == 0);
}

/* Returns true when the queue is full. Returns false when no worker is ready. */
static bool is_capacity(const struct api_error *e)
{
    return e->http_status == 429 || (e->http_status == 503 && e->retry_after_s);
}

/* Returns the HTTP status of an error. DJL has no 429 unless its operator chose one. */
int djl_async_status(const struct api_error *e)
{
    if (is_about_the_request(e))
        return INVALID;
    if (is_throttled(e))
        return 429;
    if (is_capacity(e))
        return statuses.throttle_error;
    switch (e->http_status) {
    case 400:
        return statuses.bad_request;
    case 500:
        return statuses.server_error;
    case 503:
        return statuses.wlm_error;
    case 504:
        return statuses.timeout;
    default:
        return e->http_status;
    }
}

int djl_rolling_status(const struct api_error *e)
{
    return e->http_status == 500 ? INVALID : djl_async_status(e);
}

static const char *type_of(const struct api_error *e)
{
    switch (e->http_status) {
    case 400:
    case 413:
        return "BadRequestException";
    case 401:
        return "UnauthorizedException";
    case 404:
        return "ResourceNotFoundException";
    case 405:
        return "MethodNotAllowedException";
    case 429:
        return is_throttled(e) ? "ThrottlingException" : "WlmCapacityException";
    case 503:
        return is_capacity(e) ? "WlmCapacityException" : "WlmException";
    default:
        return "InternalServerException";
    }
}

void djl_front_end_error(struct strbuf *out, const struct api_error *e, int status)
{
    strbuf_printf(out, "{\n  \"code\": %d,\n  \"type\": \"%s\",\n  \"message\": ", status,
                  type_of(e));
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
        djl_front_end_error(out, e, status);
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
    } else if (e->http_status == 500) {
        append_handler(out, status, "", e->message);
    } else {
        djl_front_end_error(out, e, status);
    }
    strbuf_append_c(out, "\n");
}
