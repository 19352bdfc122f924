#include "gateway/request/error_reply.h"

#include "gateway/request/out.h"
#include "gateway/request/promise.h"

void api_answer_error(struct api_request *r, const struct api_error *e)
{
    if (r->state != API_STREAMING) {
        struct api_error shown = *e;
        metric_add(r->s->metrics.rejected, 1);
        promise_explain_first(r, &shown);
        promise_tell(r);
        reply_error(r->reply_ops, r->reply, r->dialect, &shown);
        return;
    }
    strbuf_reset(&r->s->out);
    if (r->dialect->fail)
        r->dialect->fail(&r->s->out, &r->shape, &r->dialect_state, e);
    else
        r->dialect->error(&r->s->out, e, true);
    api_request_write_out(r);
    if (r->reply)
        r->reply_ops->end(r->reply);
}
