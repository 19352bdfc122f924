/* Passes a connection's bytes through its TLS session. All bytes that a read decrypts are passed
 * to the parser or c->pending before the read returns, so a session holds no plain bytes.
 * Reading stops when c->pending is full. */
#include "common/http/server/tls.h"

#include "common/base/log.h"
#include "common/http/conn/lifecycle.h"
#include "common/http/conn/output.h"
#include "common/http/conn/refuse.h"
#include "common/tls/session.h"

enum { OWN_MAX = 64 << 10 };

bool conn_tls_begin(struct conn *c)
{
    c->tls = tls_session_new(c->server->tls);
    return c->tls != NULL;
}

/* Sends TLS's own messages: handshake, keys, alerts. Returns false when too many of them wait,
 * because a peer may request such messages without end and read none. */
static bool send_own(struct conn *c)
{
    c->tls_own_bytes += tls_output(c->tls).len;
    return conn_tls_flush(c) && c->tls_own_bytes <= OWN_MAX;
}

static void fail(struct conn *c, bool not_tls)
{
    log_debug("tls_failed", "up=%s why=%s", c->arrived_ns ? "true" : "false",
              log_quote(tls_why(c->tls)));
    if (c->state == CONN_READING && not_tls) {
        tls_session_free(c->tls);
        c->tls = NULL;
        conn_refuse(c, 400, "This address uses TLS. Use https:// instead of http://");
    } else if (c->state == CONN_READING) {
        conn_linger(c); /* the wait gives the peer time to read the alert */
    } else if (c->state != CONN_LINGERING) {
        conn_abort(c);
    }
}

void conn_tls_on_bytes(struct conn *c, struct str bytes, const struct conn_taker *taker)
{
    char *plain = c->server->plain_buffer;
    size_t n;
    tls_feed(c->tls, bytes);
    while (c->state != CONN_CLOSING) {
        enum tls_step step = tls_read(c->tls, plain, HTTP_PLAIN_BUFFER, &n);
        if (step != TLS_NOT_TLS && !send_own(c)) {
            conn_abort(c);
            return;
        }
        switch (step) {
        case TLS_BYTES:
            taker->plain(c, (struct str){plain, n});
            break;
        case TLS_MORE:
            return;
        case TLS_CLOSED:
            taker->eof(c);
            return;
        case TLS_NOT_TLS:
        case TLS_FAILED:
            fail(c, step == TLS_NOT_TLS);
            return;
        }
    }
}
