#include "common/http/conn/progress.h"

void progress_begin(struct progress *p, uint64_t now_ns)
{
    *p = (struct progress){.moved_ns = now_ns, .window_begun_ns = now_ns};
}

static bool window_ended(const struct progress *p, const struct progress_rules *r, uint64_t now_ns)
{
    return now_ns - p->window_begun_ns >= r->window_ns;
}

/* Starts the next window when the last window is over and had enough bytes. */
static void begin_next_window(struct progress *p, const struct progress_rules *r, uint64_t now_ns)
{
    if (!window_ended(p, r, now_ns) || p->window_bytes < r->window_bytes)
        return;
    p->window_begun_ns = now_ns;
    p->window_bytes = 0;
}

void progress_moved(struct progress *p, const struct progress_rules *r, uint64_t now_ns,
                    uint64_t bytes)
{
    if (bytes == 0)
        return;
    p->moved_ns = now_ns;
    p->window_bytes += bytes;
    begin_next_window(p, r, now_ns);
}

enum progress_verdict progress_judge(struct progress *p, const struct progress_rules *r,
                                     uint64_t now_ns)
{
    begin_next_window(p, r, now_ns);
    if (now_ns - p->moved_ns >= r->stall_ns)
        return PROGRESS_STALLED;
    if (window_ended(p, r, now_ns) && p->window_bytes < r->window_bytes)
        return PROGRESS_CRAWLS;
    return PROGRESS_FINE;
}

static uint64_t left(uint64_t from_ns, uint64_t span_ns, uint64_t now_ns)
{
    const uint64_t passed = now_ns - from_ns;
    return passed < span_ns ? span_ns - passed : 0;
}

uint64_t progress_wait_ns(const struct progress *p, const struct progress_rules *r, uint64_t now_ns)
{
    const uint64_t stall = left(p->moved_ns, r->stall_ns, now_ns);
    const uint64_t window = left(p->window_begun_ns, r->window_ns, now_ns);
    return window < stall ? window : stall;
}
