#include "gateway/request/reply.h"

void reply_error(const struct reply_ops *ops, void *reply, const struct dialect *d,
                 const struct api_error *e)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    if (d)
        d->error(&b, e, false);
    else
        api_error_json(e, &b);
    int status = d && d->status ? d->status(e) : e->http_status;
    ops->respond(reply, status, strbuf_str(&b), e->retry_after_s);
    strbuf_fini(&b);
}
