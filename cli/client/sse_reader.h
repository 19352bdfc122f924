#pragma once
/* Reads server-sent events from bytes that arrive in pieces of any size. A callback receives the
 * data of each event. Comments and other fields are skipped. A line above the limit ends the
 * stream with an error. */
#include "common/base/str.h"

struct sse_reader {
    struct strbuf line;
    void (*on_data)(void *ctx, struct str data);
    void *ctx;
};

void sse_reader_init(struct sse_reader *r, void (*on_data)(void *ctx, struct str data), void *ctx);
void sse_reader_fini(struct sse_reader *r);
/* Returns false when a line is too long. */
bool sse_reader_feed(struct sse_reader *r, struct str bytes);
