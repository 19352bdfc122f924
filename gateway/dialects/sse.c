#include "gateway/dialects/sse.h"

void sse_begin(struct strbuf *out)
{
    strbuf_append_c(out, "data: ");
}

void sse_end(struct strbuf *out)
{
    strbuf_append_c(out, "\n\n");
}
