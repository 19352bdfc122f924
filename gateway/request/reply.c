#include "gateway/request/reply.h"

int reply_error_body(struct strbuf *out, const struct dialect *d, const struct api_error *e)
{
    if (d)
        d->error(out, e, false);
    else
        api_error_json(e, out);
    return d && d->status ? d->status(e) : e->http_status;
}

void reply_error(const struct reply_ops *ops, void *reply, const struct dialect *d,
                 const struct api_error *e)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    int status = reply_error_body(&b, d, e);
    ops->respond(reply, status, strbuf_str(&b), e->retry_after_s);
    strbuf_fini(&b);
}
