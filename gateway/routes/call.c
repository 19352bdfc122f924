#include "gateway/routes/call.h"

#include "common/http/server/request.h"
#include "gateway/http/reply.h"

struct serving_request call_serving(const struct call *c, const struct dialect *d)
{
    return (struct serving_request){
        .dialect = d,
        .body = http_body(c->request),
        .tenant = call_tenant(c),
        .key = c->key,
        .full_usage = str_eq_c(http_header(c->request, "x-coxswain-usage"), "full"),
        .request_id = str_from(http_get_id(c->request))};
}

void call_error(struct http_request *r, int status, const char *code, const char *text)
{
    struct api_error e = {.code = code, .retry_after_s = status == 503 ? 1 : 0};
    api_error_set(&e, status, NULL, "%s", text);
    reply_error(&http_reply_ops, r, NULL, &e);
}
