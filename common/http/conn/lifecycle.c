/* Moves a connection from state to state, closes it and frees it. `conn_next` lists the legal
 * transitions. */
#include "common/http/conn/lifecycle.h"

#include <assert.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/http/conn/charge.h"
#include "common/http/conn/gather.h"
#include "common/http/conn/output.h"
#include "common/http/conn/places.h"
#include "common/http/conn/timer.h"
#include "common/tls/session.h"

enum { LINGER_MS = 2000, LINGER_BYTES = 64 << 20 };

static const unsigned conn_next[CONN_STATE_COUNT] = {
    [CONN_READING] =
        1u << CONN_DECODING | 1u << CONN_WAITING | 1u << CONN_LINGERING | 1u << CONN_CLOSING,
    [CONN_DECODING] = 1u << CONN_WAITING | 1u << CONN_LINGERING | 1u << CONN_CLOSING,
    [CONN_WAITING] = 1u << CONN_STREAMING | 1u << CONN_FLUSHING | 1u << CONN_CLOSING,
    [CONN_STREAMING] = 1u << CONN_FLUSHING | 1u << CONN_CLOSING,
    [CONN_FLUSHING] = 1u << CONN_READING | 1u << CONN_LINGERING | 1u << CONN_CLOSING,
    [CONN_LINGERING] = 1u << CONN_CLOSING,
};

void conn_enter(struct conn *c, enum conn_state next)
{
    assert(conn_next[c->state] & 1u << next);
    c->state = next;
    if (next == CONN_READING || (next == CONN_LINGERING && !c->is_extra))
        places_wait(c);
    else if (next == CONN_FLUSHING && c->queued_bytes > 0)
        /* most answers are written at once; the other connections enter `held` at their next check
         */
        places_hold(c);
    else
        places_stay(c);
}

void conn_release(struct conn *c)
{
    if (--c->open_handles > 0)
        return;
    conn_forget_decoded(c);
    struct http_server *s = c->server;
    http_parser_free(c->parser);
    tls_session_free(c->tls);
    strbuf_fini(&c->pending);
    strbuf_fini(&c->added);
    mem_free(c); /* no other place frees a connection */
    http_server_release(s);
}

static void on_closed(uv_handle_t *h)
{
    conn_release(h->data);
}

void conn_close(struct conn *c)
{
    if (c->state == CONN_CLOSING)
        return;
    if (c->tls && !c->cut)
        conn_tls_goodbye(c);
    conn_enter(c, CONN_CLOSING);
    if (c->decoding)
        /* uv_cancel succeeds only if the decoding has not begun */
        (void)uv_cancel((uv_req_t *)c->decoding);
    conn_release_rooms(c);
    room_set(&c->server->answers, &c->answer, 0, 0);
    gather_drop(c);
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->server->n_conns--;
    c->server->n_extra -= c->is_extra;
    /* A reset also drops the bytes that the kernel would otherwise keep for a reader that has
     * stopped. */
    if (!c->reset || c->server->is_unix || uv_tcp_close_reset(&c->io.tcp, on_closed) != 0)
        uv_close(&c->io.handle, on_closed);
    uv_close((uv_handle_t *)&c->deadline, on_closed);
}

void conn_tell_answered(struct conn *c, bool aborted)
{
    struct http_server *s = c->server;
    if (!s->handlers.on_answered)
        return;
    c->answered.aborted = aborted;
    c->answered.duration_ns = clock_mono_ns() - c->arrived_ns;
    s->handlers.on_answered(s->handlers.ctx, &c->request, &c->answered);
}

void conn_abort(struct conn *c)
{
    bool held = c->state == CONN_WAITING || c->state == CONN_STREAMING;
    struct http_server *s = c->server;
    c->cut = held || c->queued_bytes + c->gathered_bytes > 0;
    conn_close(c);
    if (held && s->handlers.on_abort)
        s->handlers.on_abort(s->handlers.ctx, &c->request);
    if (held)
        conn_tell_answered(c, true);
}

bool conn_is_idle(const struct conn *c)
{
    return c->state == CONN_READING && http_parser_idle(c->parser);
}

bool conn_has_work(const struct conn *c)
{
    return c->state == CONN_READING || c->state == CONN_DECODING || c->state == CONN_WAITING ||
           c->state == CONN_STREAMING || c->state == CONN_FLUSHING;
}

void conn_linger(struct conn *c)
{
    conn_enter(c, CONN_LINGERING);
    conn_release_rooms(c);
    c->linger_left = LINGER_BYTES;
    conn_arm(c, LINGER_MS);
}
