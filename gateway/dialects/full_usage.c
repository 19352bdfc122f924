#include "gateway/dialects/full_usage.h"

void full_usage_append(struct strbuf *out, const struct answer_usage *u)
{
    if (!u->is_full)
        return;
    if (u->block_ms > 0 || u->step_ns > 0)
        strbuf_printf(out, ",\"coxswain\":{\"block_seconds\":%.3f,\"step_seconds\":%.9f",
                      (double)u->block_ms / 1e3, (double)u->step_ns / 1e9);
    else
        strbuf_append_c(out, ",\"coxswain\":{\"block_seconds\":null,\"step_seconds\":null");
    strbuf_printf(out, ",\"queue_seconds\":%.6f}", (double)u->queue_ns / 1e9);
}
