#include "gateway/routes/call.h"

#include <stdio.h>
#include <string.h>

#include "common/http/server/request.h"
#include "gateway/http/reply.h"
#include "gateway/routes/state.h"

struct serving_request call_serving(const struct call *c, const struct dialect *d)
{
    return (struct serving_request){
        .dialect = d,
        .body = http_body(c->request),
        .model_at = http_looked(c->request),
        .tenant = call_tenant(c),
        .key = c->key,
        .target = http_header(c->request, "x-coxswain-model"),
        .slo_ttft = http_header(c->request, "x-slo-ttft-ms"),
        .full_usage = str_eq_c(http_header(c->request, "x-coxswain-usage"), "full"),
        .request_id = str_from(http_get_id(c->request))};
}

void call_error(struct http_request *r, int status, const char *code, const char *text)
{
    struct api_error e = {.code = code, .retry_after_s = status == 503 ? 1 : 0};
    api_error_set(&e, status, NULL, "%s", text);
    reply_error(&http_reply_ops, r, NULL, &e);
}

struct str path_decode_name(struct str in, char *buf, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < in.len; i++, n++) {
        unsigned byte;
        char hex[3] = {0};
        if (n >= size)
            return in;
        buf[n] = in.ptr[i];
        if (in.ptr[i] != '%' || in.len - i < 3)
            continue;
        memcpy(hex, in.ptr + i + 1, 2);
        if (strspn(hex, "0123456789abcdefABCDEF") == 2 && sscanf(hex, "%x", &byte) == 1) {
            buf[n] = (char)byte;
            i += 2;
        }
    }
    return (struct str){buf, n};
}

const char *call_admin(const struct api_server *a, const struct call *c)
{
    const char *who = admin_keys_who(&a->admin_keys, http_header(c->request, "authorization"));
    return who ? who : "";
}
