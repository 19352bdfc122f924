/* Keeps the requests that wait for sleep or for its end. The core has no callback for it, so a
 * timer looks at its state while a request waits. Counters tell a request that was answered by a
 * short sleep from one whose order was called off. Each request is answered once, or dropped when
 * its client has gone. */
#include "head/admin/calls/sleep_calls.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/http/server/request.h"
#include "head/admin/calls/query.h"
#include "head/core/scale.h"

enum { LOOK_MS = 5 };

struct call {
    struct http_request *r;
    bool wakes;
    uint64_t n_falls, n_called_off; /* the core's counters at the time of the order */
};

struct sleep_calls {
    struct loop *loop;
    struct head_core *core;
    struct loop_timer *timer; /* NULL = no request waits */
    sleep_answer_fn *answer;
    void *ctx;
    struct call calls[SLEEP_CALLS_MAX]; /* array of n */
    uint32_t n;
};

struct sleep_calls *sleep_calls_new(struct loop *l, struct head_core *core, sleep_answer_fn *answer,
                                    void *ctx)
{
    struct sleep_calls *s = mem_zalloc(sizeof *s);
    s->loop = l;
    s->core = core;
    s->answer = answer;
    s->ctx = ctx;
    return s;
}

void sleep_calls_free(struct sleep_calls *s)
{
    if (!s)
        return;
    loop_timer_stop(s->timer);
    mem_free(s);
}

/* Answers a call whose time has come. Returns false when it must still wait. */
static bool try_answer(struct sleep_calls *s, const struct call *c)
{
    const struct head_sleep *now = head_core_sleep_state(s->core);
    const bool is_done = c->wakes ? now->state == SLEEP_AWAKE
                                  : now->n_falls != c->n_falls || now->state == SLEEP_ASLEEP;
    if (is_done)
        s->answer(s->ctx, c->r, 200, "");
    else if (c->wakes && now->state == SLEEP_ASLEEP)
        s->answer(s->ctx, c->r, 409, "the model was put to sleep again before it served");
    else if (c->wakes && !head_core_is_ready(s->core))
        s->answer(s->ctx, c->r, 503,
                  "no replica serves yet: `cox status` shows which workers are missing");
    else if (!c->wakes && now->n_called_off != c->n_called_off)
        s->answer(s->ctx, c->r, 409,
                  "the order to sleep was called off: requests still run, or the model was woken. "
                  "Try again later, or use mode=abort to end the requests");
    else
        return false;
    return true;
}

static void look(void *ctx)
{
    struct sleep_calls *s = ctx;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (!try_answer(s, &s->calls[i]))
            s->calls[n++] = s->calls[i];
    s->n = n;
    if (n == 0) {
        loop_timer_stop(s->timer);
        s->timer = NULL;
    }
}

static void await(struct sleep_calls *s, struct call c)
{
    if (str_eq_c(query_word(http_query(c.r), "wait"), "no")) {
        s->answer(s->ctx, c.r, 202, "");
        return;
    }
    if (s->n == SLEEP_CALLS_MAX) {
        s->answer(s->ctx, c.r, 503,
                  "too many requests wait for the model to sleep or wake: add wait=no and ask "
                  "GET /is_sleeping");
        return;
    }
    s->calls[s->n++] = c;
    if (!s->timer)
        s->timer = loop_timer_start(s->loop, 0, LOOK_MS, look, s);
}

void sleep_calls_sleep(struct sleep_calls *s, struct http_request *r, const char *by)
{
    const struct head_sleep *now = head_core_sleep_state(s->core);
    const struct call c = {.r = r, .n_falls = now->n_falls, .n_called_off = now->n_called_off};
    struct str level = query_word(http_query(r), "level");
    struct str mode = query_word(http_query(r), "mode");
    bool two = str_eq_c(level, "2"), ends = str_eq_c(mode, "abort");
    if (level.len > 0 && !two && !str_eq_c(level, "1")) {
        s->answer(s->ctx, r, 400, "the parameter level must be 1 or 2");
    } else if (mode.len > 0 && !ends && !str_eq_c(mode, "wait")) {
        s->answer(s->ctx, r, 400, "the parameter mode must be wait or abort");
    } else {
        head_core_sleep(s->core, two ? SLEEP_LEVEL_WEIGHTS : SLEEP_LEVEL_KV, ends, by,
                        loop_now_ns(s->loop));
        await(s, c);
    }
}

void sleep_calls_wake(struct sleep_calls *s, struct http_request *r, const char *by)
{
    head_core_wake(s->core, by, loop_now_ns(s->loop));
    await(s, (struct call){.r = r, .wakes = true});
}

enum status sleep_calls_rest(struct sleep_calls *s, const json_t *in, struct error *err)
{
    const json_t *level = json_object_get(in, "sleep_level"),
                 *resting = json_object_get(in, "resting");
    json_int_t n = json_integer_value(level);
    bool is_sane = json_is_object(in) && (!resting || json_is_boolean(resting)) &&
                   (!level || (json_is_integer(level) && n >= 1 && n <= 2)) &&
                   !(level && json_is_false(resting));
    if (!is_sane)
        return error_set(err, STATUS_INVALID,
                         "the body must be {}, {\"sleep_level\": 1 or 2} or {\"resting\": false}");
    if (json_is_false(resting)) {
        head_core_end_rest(s->core, loop_now_ns(s->loop));
        return STATUS_OK;
    }
    if (!level)
        return head_core_rest(s->core, err);
    return head_core_rest_asleep(s->core, (enum sleep_level)n, loop_now_ns(s->loop), err);
}

void sleep_calls_on_abort(struct sleep_calls *s, const struct http_request *r)
{
    for (uint32_t i = 0; s && i < s->n; i++) {
        if (s->calls[i].r != r)
            continue;
        memmove(&s->calls[i], &s->calls[i + 1], (s->n - i - 1) * sizeof s->calls[0]);
        s->n--;
        return;
    }
}
