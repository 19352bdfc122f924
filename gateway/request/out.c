#include "gateway/request/out.h"

enum { OUT_KEEP_BYTES = 1 << 20 };

void serving_trim_out(struct serving *s)
{
    if (s->out.cap <= OUT_KEEP_BYTES)
        return;
    size_t limit = s->out.limit;
    strbuf_fini(&s->out);
    strbuf_init(&s->out, limit);
}

void api_request_write_out(struct api_request *r)
{
    r->last_write_ns = serving_now(r->s);
    if (r->s->out.len > 0)
        r->reply_ops->write(r->reply, strbuf_str(&r->s->out));
    serving_trim_out(r->s);
}
