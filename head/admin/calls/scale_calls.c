#include "head/admin/calls/scale_calls.h"

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/core/scale.h"

struct call {
    struct http_request *r;
    uint64_t seen, until_ns;
};

struct scale_calls {
    struct head_core *core;
    scale_answer_fn *answer;
    void *ctx;
    struct call calls[SCALE_CALLS_MAX]; /* array of n, in no order */
    uint32_t n;
};

struct scale_calls *scale_calls_new(struct head_core *core, scale_answer_fn *answer, void *ctx)
{
    struct scale_calls *s = mem_zalloc(sizeof *s);
    *s = (struct scale_calls){.core = core, .answer = answer, .ctx = ctx};
    return s;
}

bool scale_calls_keep(struct scale_calls *s, struct http_request *r, uint64_t seen,
                      uint32_t wait_ms, uint64_t now_ns)
{
    if (wait_ms == 0 || s->n == SCALE_CALLS_MAX || seen != head_core_scale_version(s->core))
        return false;
    s->calls[s->n++] = (struct call){r, seen, now_ns + wait_ms * NS_PER_MS};
    return true;
}

/* Takes the call out first: after its answer the request is gone. */
static void answer(struct scale_calls *s, uint32_t i)
{
    struct http_request *r = s->calls[i].r;
    s->calls[i] = s->calls[--s->n];
    s->answer(s->ctx, r);
}

void scale_calls_turn(struct scale_calls *s, uint64_t now_ns)
{
    if (s->n == 0)
        return;
    const uint64_t version = head_core_scale_version(s->core);
    for (uint32_t i = s->n; i-- > 0;)
        if (s->calls[i].seen != version || now_ns >= s->calls[i].until_ns)
            answer(s, i);
}

void scale_calls_on_abort(struct scale_calls *s, const struct http_request *r)
{
    for (uint32_t i = 0; s && i < s->n; i++) {
        if (s->calls[i].r != r)
            continue;
        s->calls[i] = s->calls[--s->n];
        return;
    }
}

void scale_calls_free(struct scale_calls *s)
{
    if (!s)
        return;
    while (s->n > 0)
        answer(s, s->n - 1);
    mem_free(s);
}
