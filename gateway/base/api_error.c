#include "gateway/base/api_error.h"

#include <stdio.h>

bool api_error_set(struct api_error *e, int http_status, const char *param, const char *fmt, ...)
{
    if (e->http_status)
        return false;
    va_list ap;
    va_start(ap, fmt);
    e->http_status = http_status;
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return false;
}

/* Returns vLLM's name for an HTTP status, such as "BadRequestError" for 400. */
static const char *type_name(int http_status)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {
        {400, "BadRequestError"}, {401, "invalid_request_error"}, {403, "PermissionDeniedError"},
        {404, "NotFoundError"},   {405, "MethodNotAllowedError"}, {413, "BadRequestError"},
        {429, "RateLimitError"},  {501, "NotImplementedError"},   {503, "ServiceUnavailableError"},
        {504, "TimeoutError"},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == http_status)
            return types[i].type;
    return "InternalServerError";
}

void api_error_json(const struct api_error *e, struct strbuf *out)
{
    strbuf_append_c(out, "{\"error\":{\"message\":");
    strbuf_append_json(out, str_from(e->message));
    strbuf_printf(out, ",\"type\":\"%s\",\"param\":", type_name(e->http_status));
    if (e->param[0])
        strbuf_append_json(out, str_from(e->param));
    else
        strbuf_append_c(out, "null");
    if (e->code)
        strbuf_printf(out, ",\"code\":\"%s\"}}", e->code);
    else
        strbuf_printf(out, ",\"code\":%d}}", e->http_status);
}
