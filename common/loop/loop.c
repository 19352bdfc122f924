/* Wraps libuv in a thin layer, for the loop of every program. Each object (timer, wakeup,
 * signal) is one heap struct around one uv handle. The object is linked in the loop's list of
 * its kind and freed in the handle's close callback, so that it may be stopped inside its own
 * callback. All functions except loop_wake must be called on the loop's thread.
 *
 * Turn hooks use uv_prepare and not uv_check. libuv runs timers, then idle, then prepare, then
 * polls. A hook after the poll would leave the results of a timer waiting until the next I/O. */
#include "common/loop/loop.h"

#include <assert.h>
#include <signal.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/loop/uv.h"

enum { LOOP_TICK_MS = 250, LOOP_LAG_SLOTS = 4 };

struct loop_timer {
    struct loop_timer *next, **prev;
    uv_timer_t uv;
    uint64_t period_ms;
    loop_fn *fn;
    void *ctx;
};

struct loop_wakeup {
    struct loop_wakeup *next, **prev;
    uv_async_t uv;
    loop_fn *fn;
    void *ctx;
};

struct loop_signal {
    struct loop_signal *next;
    uv_signal_t uv;
    loop_signal_fn *fn;
    void *ctx;
};

struct loop_hook {
    struct loop_hook *next;
    loop_fn *fn;
    void *ctx;
};

struct loop {
    uv_loop_t uv;
    struct loop_timer *timers;
    struct loop_wakeup *wakeups;
    struct loop_signal *signals;
    struct loop_hook *turn_hooks, *free_hooks;
    uv_prepare_t turn;
    uv_timer_t tick;
    uint64_t tick_due_ns, lag_ns[LOOP_LAG_SLOTS];
    unsigned i_lag;
};

#define LIST_PUSH(head, item)                                                                      \
    do {                                                                                           \
        (item)->next = (head);                                                                     \
        (item)->prev = &(head);                                                                    \
        if (head)                                                                                  \
            (head)->prev = &(item)->next;                                                          \
        (head) = (item);                                                                           \
    } while (0)

#define LIST_DROP(item)                                                                            \
    do {                                                                                           \
        *(item)->prev = (item)->next;                                                              \
        if ((item)->next)                                                                          \
            (item)->next->prev = (item)->prev;                                                     \
    } while (0)

uv_loop_t *loop_uv(struct loop *l)
{
    return &l->uv;
}

static void on_turn(uv_prepare_t *h)
{
    struct loop *l = h->data;
    for (struct loop_hook *k = l->turn_hooks; k; k = k->next)
        k->fn(k->ctx);
}

static void on_tick(uv_timer_t *h)
{
    struct loop *l = h->data;
    uint64_t now = clock_mono_ns();
    l->i_lag = (l->i_lag + 1) % LOOP_LAG_SLOTS;
    l->lag_ns[l->i_lag] = now > l->tick_due_ns ? now - l->tick_due_ns : 0;
    l->tick_due_ns = now + LOOP_TICK_MS * NS_PER_MS;
}

enum status loop_new(struct loop **out, struct error *err)
{
    struct loop *l = mem_zalloc(sizeof *l);
    int rc = uv_loop_init(&l->uv);
    if (rc) {
        mem_free(l);
        return error_set(err, STATUS_IO, "cannot create an event loop: %s", uv_strerror(rc));
    }
    /* libuv writes to sockets with write(2). A write to a closed peer must return an error and
     * not end the process. */
    signal(SIGPIPE, SIG_IGN);
    /* uv_prepare_init and the three calls after it cannot fail */
    uv_prepare_init(&l->uv, &l->turn);
    uv_timer_init(&l->uv, &l->tick);
    l->turn.data = l->tick.data = l;
    uv_prepare_start(&l->turn, on_turn);
    uv_timer_start(&l->tick, on_tick, LOOP_TICK_MS, LOOP_TICK_MS);
    *out = l;
    return STATUS_OK;
}

void loop_run(struct loop *l)
{
    /* Slow work before the loop runs (loading a model) must not count as lag. */
    l->tick_due_ns = clock_mono_ns() + LOOP_TICK_MS * NS_PER_MS;
    uv_update_time(&l->uv);
    uv_timer_again(&l->tick);
    uv_run(&l->uv, UV_RUN_DEFAULT);
}

void loop_stop(struct loop *l)
{
    uv_stop(&l->uv);
}

uint64_t loop_now_ns(const struct loop *l)
{
    return clock_mono_ns();
}

uint64_t loop_lag_ns(const struct loop *l)
{
    uint64_t now = clock_mono_ns(), worst = 0;
    if (l->tick_due_ns && now > l->tick_due_ns)
        worst = now - l->tick_due_ns; /* the tick is overdue, so the lag is at least this long */
    for (int i = 0; i < LOOP_LAG_SLOTS; i++)
        if (l->lag_ns[i] > worst)
            worst = l->lag_ns[i];
    return worst;
}

static void add_hook(struct loop_hook **end, loop_fn *fn, void *ctx)
{
    struct loop_hook *k = mem_zalloc(sizeof *k);
    *k = (struct loop_hook){.fn = fn, .ctx = ctx};
    while (*end)
        /* the new hook is added at the end, so that hooks run in the order in which they were
         * added */
        end = &(*end)->next;
    *end = k;
}

void loop_on_turn_end(struct loop *l, loop_fn *fn, void *ctx)
{
    add_hook(&l->turn_hooks, fn, ctx);
}

void loop_on_free(struct loop *l, loop_fn *fn, void *ctx)
{
    add_hook(&l->free_hooks, fn, ctx);
}

void *loop_find_on_free(const struct loop *l, loop_fn *fn)
{
    for (const struct loop_hook *k = l->free_hooks; k; k = k->next)
        if (k->fn == fn)
            return k->ctx;
    return NULL;
}

static void free_hooks(struct loop_hook *k)
{
    for (struct loop_hook *next; k; k = next) {
        next = k->next;
        mem_free(k);
    }
}

/* ---- timers ---- */

static void on_timer(uv_timer_t *h)
{
    struct loop_timer *t = h->data;
    t->fn(t->ctx);
}

static void on_timer_closed(uv_handle_t *h)
{
    mem_free(h->data);
}

struct loop_timer *loop_timer_start(struct loop *l, uint64_t first_ms, uint64_t period_ms,
                                    loop_fn *fn, void *ctx)
{
    struct loop_timer *t = mem_zalloc(sizeof *t);
    t->fn = fn;
    t->ctx = ctx;
    t->period_ms = period_ms;
    uv_timer_init(&l->uv, &t->uv);
    t->uv.data = t;
    LIST_PUSH(l->timers, t);
    loop_timer_again(t, first_ms);
    return t;
}

void loop_timer_again(struct loop_timer *t, uint64_t first_ms)
{
    uv_update_time(t->uv.loop); /* without this call libuv would count from the start of the turn */
    uv_timer_start(&t->uv, on_timer, first_ms, t->period_ms);
}

void loop_timer_stop(struct loop_timer *t)
{
    if (!t)
        return;
    LIST_DROP(t);
    uv_close((uv_handle_t *)&t->uv, on_timer_closed);
}

/* ---- calls from other threads ---- */

static void on_async(uv_async_t *h)
{
    struct loop_wakeup *w = h->data;
    w->fn(w->ctx);
}

static void on_async_closed(uv_handle_t *h)
{
    mem_free(h->data);
}

struct loop_wakeup *loop_wakeup_new(struct loop *l, loop_fn *fn, void *ctx)
{
    struct loop_wakeup *w = mem_zalloc(sizeof *w);
    w->fn = fn;
    w->ctx = ctx;
    int rc = uv_async_init(&l->uv, &w->uv, on_async);
    /* uv_async_init fails only when there are no file descriptors for the loop's pipe */
    assert(rc == 0);
    w->uv.data = w;
    LIST_PUSH(l->wakeups, w);
    return w;
}

void loop_wake(struct loop_wakeup *w)
{
    uv_async_send(&w->uv);
}

void loop_wakeup_free(struct loop_wakeup *w)
{
    if (!w)
        return;
    LIST_DROP(w);
    uv_close((uv_handle_t *)&w->uv, on_async_closed);
}

/* ---- signals ---- */

static void on_signal(uv_signal_t *h, int signum)
{
    struct loop_signal *s = h->data;
    s->fn(s->ctx, signum);
}

static void on_signal_closed(uv_handle_t *h)
{
    mem_free(h->data);
}

enum status loop_on_signal(struct loop *l, int signum, loop_signal_fn *fn, void *ctx)
{
    struct loop_signal *s = mem_zalloc(sizeof *s);
    s->fn = fn;
    s->ctx = ctx;
    int rc = uv_signal_init(&l->uv, &s->uv);
    if (rc) {
        mem_free(s);
        return STATUS_IO;
    }
    s->uv.data = s;
    rc = uv_signal_start(&s->uv, on_signal, signum);
    if (rc) {
        uv_close((uv_handle_t *)&s->uv, on_signal_closed);
        return STATUS_INVALID;
    }
    s->next = l->signals;
    l->signals = s;
    return STATUS_OK;
}

/* ---- shutdown ---- */

/* Closes the handle, which restores the signal's earlier action. Under sanitizers the signal is
 * ignored from then on. A second SIGTERM would otherwise end the process during its leak check,
 * and the report would be lost. */
static void close_signal(struct loop_signal *s)
{
    int signum = s->uv.signum;
    uv_close((uv_handle_t *)&s->uv, on_signal_closed);
#ifdef COX_SANITIZED
    if (signum == SIGTERM || signum == SIGINT || signum == SIGHUP)
        signal(signum, SIG_IGN);
#endif
    (void)signum;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    while (l->timers)
        loop_timer_stop(l->timers);
    while (l->wakeups)
        loop_wakeup_free(l->wakeups);
    for (struct loop_signal *s = l->signals, *next; s; s = next) {
        next = s->next;
        close_signal(s);
    }
    for (struct loop_hook *k = l->free_hooks; k; k = k->next)
        k->fn(k->ctx);
    uv_close((uv_handle_t *)&l->turn, NULL);
    uv_close((uv_handle_t *)&l->tick, NULL);
    /* Close callbacks may close more handles, so the loop runs several times. If a handle is
     * still open after that, its owner forgot to close it. */
    for (int i = 0; i < 16 && uv_loop_alive(&l->uv); i++)
        uv_run(&l->uv, UV_RUN_NOWAIT);
    int rc = uv_loop_close(&l->uv);
    assert(rc == 0 && "a bus or an HTTP server was not closed before loop_free");
    free_hooks(l->turn_hooks);
    free_hooks(l->free_hooks);
    mem_free(l);
}
