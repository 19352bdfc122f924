#include "common/http/conn/output.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/http/conn/charge.h"
#include "common/http/conn/state.h"
#include "common/http/conn/timer.h"
#include "common/tls/session.h"

struct write {
    uv_write_t req;
    size_t n;
    char bytes[];
};

static void on_written(uv_write_t *req, int rc)
{
    struct write *w = (struct write *)req;
    struct conn *c = req->handle->data;
    c->queued_bytes -= w->n;
    mem_free(w);
    if (c->queued_bytes == 0)
        c->tls_own_bytes = 0;
    if (c->state != CONN_CLOSING)
        c->server->calls->written(c, rc);
}

/* Copies a, b and d into one write. Returns false when the write was refused. The next turn
 * aborts the connection. */
static bool send_plain(struct conn *c, struct str a, struct str b, struct str d)
{
    size_t n = a.len + b.len + d.len;
    struct write *w = mem_alloc(sizeof *w + n);
    w->n = n;
    memcpy(w->bytes, a.ptr, a.len);
    if (b.len)
        memcpy(w->bytes + a.len, b.ptr, b.len);
    if (d.len)
        memcpy(w->bytes + a.len + b.len, d.ptr, d.len);
    uv_buf_t buf = uv_buf_init(w->bytes, (unsigned)n);
    /* While a request is read, bytes that TLS sends by itself do not extend a deadline.
     * Otherwise a client could keep an unfinished request for ever by requesting new keys. */
    if (conn_is_answering(c) &&
        (c->queued_bytes == 0 || !uv_is_active((uv_handle_t *)&c->deadline)))
        conn_arm_writing(c);
    c->queued_bytes += n;
    c->sent_bytes += n;
    /* uv_write calls on_written on a later turn. A refused write also ends on a later turn
     * (conn_abort_soon), so that a handler is never told of an abort inside its own call. */
    int rc = uv_write(&w->req, &c->io.stream, &buf, 1, on_written);
    if (rc == 0) {
        conn_charge_answer(c);
        return true;
    }
    c->queued_bytes -= n;
    mem_free(w);
    conn_abort_soon(c);
    return false;
}

/* ---- with TLS ---- */

bool conn_tls_flush(struct conn *c)
{
    struct str out = tls_output(c->tls);
    bool sent = out.len == 0 || send_plain(c, out, STR(""), STR(""));
    tls_output_sent(c->tls);
    return sent;
}

static bool send_by_tls(struct conn *c, struct str a, struct str b, struct str d)
{
    const struct str parts[] = {a, b, d};
    if (tls_write(c->tls, parts, 3) && conn_tls_flush(c))
        return true;
    /* the abort follows on the next turn, because the handler may be on the stack now */
    conn_abort_soon(c);
    return false;
}

void conn_tls_goodbye(struct conn *c)
{
    tls_close_notify(c->tls);
    (void)conn_tls_flush(c);
}

/* ---- plain or TLS ---- */

bool conn_send(struct conn *c, struct str a, struct str b, struct str d)
{
    return c->tls ? send_by_tls(c, a, b, d) : send_plain(c, a, b, d);
}

void conn_write_pieces(struct conn *c, const uv_buf_t *pieces, uint32_t n)
{
    size_t done = 0;
    if (c->queued_bytes == 0 && !c->tls) {
        int rc = uv_try_write(&c->io.stream, pieces, n);
        /* an error is ignored here, because uv_write reports it again */
        done = rc > 0 ? (size_t)rc : 0;
        c->sent_bytes += done;
    }
    for (uint32_t i = 0; i < n; i++) {
        size_t k = done < pieces[i].len ? done : pieces[i].len;
        done -= k;
        if (k < pieces[i].len)
            conn_send(c, (struct str){pieces[i].base + k, pieces[i].len - k}, STR(""), STR(""));
    }
}
