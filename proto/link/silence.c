#include "proto/link/silence.h"

uint64_t silence_limit_ns(uint32_t suspect_ms)
{
    enum { LEAST_MS = 400, MOST_MS = 600000 };
    if (suspect_ms < LEAST_MS || suspect_ms > MOST_MS)
        return SILENCE_USUAL_NS;
    return suspect_ms * 1500000ull;
}

void silence_begin(struct silence *s, uint64_t now_ns)
{
    *s = (struct silence){.heard_ns = now_ns, .looked_ns = now_ns};
}

void silence_heard(struct silence *s, uint64_t now_ns)
{
    s->heard_ns = now_ns;
    s->is_overdue = false;
}

bool silence_is_over(bool *is_overdue, uint64_t quiet_ns, uint64_t limit_ns)
{
    bool was_overdue = *is_overdue;
    *is_overdue = quiet_ns >= limit_ns;
    return was_overdue && *is_overdue;
}

bool silence_look(struct silence *s, uint64_t now_ns, uint64_t limit_ns)
{
    uint64_t since_look = now_ns > s->looked_ns ? now_ns - s->looked_ns : 0;
    if (since_look > SILENCE_STALL_NS)
        s->heard_ns += since_look - SILENCE_STALL_NS;
    if (s->heard_ns > now_ns)
        s->heard_ns = now_ns;
    s->looked_ns = now_ns;
    return silence_is_over(&s->is_overdue, now_ns - s->heard_ns, limit_ns);
}
