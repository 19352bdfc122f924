#pragma once
/* Server-sent events from bytes that come in any pieces: calls back with the data of each event.
 * Comments and other fields are skipped; a line above the limit ends the stream as an error. */
#include "common/base/str.h"

struct sse_reader {
    struct strbuf line;
    void (*on_data)(void *ctx, struct str data);
    void *ctx;
};

void sse_reader_init(struct sse_reader *r, void (*on_data)(void *ctx, struct str data), void *ctx);
void sse_reader_fini(struct sse_reader *r);
/* False when a line is too long. */
bool sse_reader_feed(struct sse_reader *r, struct str bytes);
