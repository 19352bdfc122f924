#include "cli/client/sse_reader.h"

enum { LINE_LIMIT = 4 << 20 };

void sse_reader_init(struct sse_reader *r, void (*on_data)(void *ctx, struct str data), void *ctx)
{
    *r = (struct sse_reader){.on_data = on_data, .ctx = ctx};
    strbuf_init(&r->line, LINE_LIMIT);
}

void sse_reader_fini(struct sse_reader *r)
{
    strbuf_fini(&r->line);
}

/* Handles a complete line. OpenAI's servers send one event per line. A data field over several
 * lines is not supported. */
static void end_line(struct sse_reader *r)
{
    struct str line = strbuf_str(&r->line);
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    if (str_starts(line, STR("data:"))) {
        line.ptr += 5;
        line.len -= 5;
        if (line.len > 0 && line.ptr[0] == ' ') {
            line.ptr++;
            line.len--;
        }
        r->on_data(r->ctx, line);
    }
    strbuf_reset(&r->line);
}

bool sse_reader_feed(struct sse_reader *r, struct str bytes)
{
    for (size_t i = 0; i < bytes.len; i++) {
        if (bytes.ptr[i] == '\n')
            end_line(r);
        else if (!strbuf_append(&r->line, &bytes.ptr[i], 1))
            return false;
    }
    return true;
}
