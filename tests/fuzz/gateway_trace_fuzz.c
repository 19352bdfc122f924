/* Fuzzes traceparent, tracestate and the collector's address, one line each. An accepted trace
 * must be written as a span, and the span must be JSON. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/http/client/post.h"
#include "gateway/trace/span.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct str next_line(struct str *rest)
{
    const char *end = rest->len ? memchr(rest->ptr, '\n', rest->len) : NULL;
    struct str line = {rest->ptr, end ? (size_t)(end - rest->ptr) : rest->len};
    size_t n = line.len + (end != NULL);
    *rest = (struct str){rest->ptr + n, rest->len - n};
    return line;
}

static void write_span(struct access_record *n, struct str name)
{
    struct strbuf b;
    json_error_t e;
    access_record_copy(n->model, name);
    strbuf_init(&b, 0);
    trace_batch_head(&b, "s", "h");
    trace_span(&b, n, 200, false, 1);
    trace_batch_tail(&b);
    json_t *j = json_loadb(b.ptr, b.len, JSON_REJECT_DUPLICATES, &e);
    if (!j)
        abort();
    json_decref(j);
    strbuf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = {(const char *)data, size};
    struct str parent = next_line(&rest), tracestate = next_line(&rest), url = next_line(&rest);
    struct access_record n = {0};
    struct http_target t;
    struct error err;
    bool good = trace_context_read(&n.trace, parent, tracestate);
    if (good != trace_context_is_set(&n.trace))
        abort();
    write_span(&n, tracestate);
    if (http_target_parse(url, "/", &t, &err) == STATUS_OK &&
        (t.host[0] == '\0' || t.path[0] != '/' || strpbrk(t.path, " \r\n") ||
         strpbrk(t.host, " \r\n@")))
        abort();
    return 0;
}
