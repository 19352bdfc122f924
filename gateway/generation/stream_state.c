#include "gateway/generation/stream_state.h"

#include <assert.h>

void stream_init(struct stream_state *s)
{
    *s = (struct stream_state){.phase = STREAM_WAITING, .attempt = 1};
}

void stream_sent(struct stream_state *s)
{
    assert(s->phase == STREAM_WAITING);
    s->phase = STREAM_OPEN;
}

void stream_again(struct stream_state *s)
{
    s->phase = STREAM_WAITING;
    s->attempt++;
}

bool stream_link_up(struct stream_state *s)
{
    if (s->phase == STREAM_OPEN)
        stream_again(s);
    return s->phase == STREAM_WAITING;
}

enum stream_verdict stream_on_tokens(struct stream_state *s, const struct tokens_item *t,
                                     uint32_t *skip)
{
    *skip = 0;
    if (s->phase != STREAM_OPEN || t->attempt != s->attempt)
        return STREAM_DROP;
    bool failed =
        t->finish != FINISH_NONE && t->finish != FINISH_STOP && t->finish != FINISH_LENGTH;
    if (failed && t->ids.n == 0)
        /* an error without ids has no position, so it ends the request in any case */
        return STREAM_ACCEPT;
    if (t->start > s->n_received) {
        stream_again(s);
        return STREAM_RESUBMIT;
    }
    uint64_t end = (uint64_t)t->start + t->ids.n;
    if (end < s->n_received && t->finish != FINISH_NONE)
        return STREAM_BROKEN;
    if (end <= s->n_received && t->finish == FINISH_NONE)
        return STREAM_DROP;
    *skip = s->n_received - t->start;
    s->n_received = (uint32_t)end;
    return STREAM_ACCEPT;
}

void stream_end(struct stream_state *s)
{
    s->phase = STREAM_ENDED;
}
