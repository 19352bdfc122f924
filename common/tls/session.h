#pragma once
/* TLS of a server's connection as bytes in, bytes out, without a socket: what came from the network
 * goes in by tls_feed, plain bytes come out of tls_read, and whatever is to be sent lies in
 * tls_output, after each call of this header. TLS 1.2 and 1.3, no renegotiation, no compression, no
 * early data, ALPN "http/1.1". A session holds a record that has come in part and what a handshake
 * needs, and is bounded: a first message over 16 KiB and certificates over 64 KiB of a client are
 * refused. Loop thread only. */
#include "common/base/str.h"

struct tls_server;
struct tls_session;
enum tls_step {
    TLS_MORE,   /* all that was fed is used */
    TLS_BYTES,  /* some plain bytes; ask again */
    TLS_CLOSED, /* the peer said that it sends no more */
    TLS_FAILED, /* not to be used any more; the output has the alert */
    TLS_NOT_TLS /* TLS_FAILED, and the first bytes were a plain HTTP request */
};
/* NULL: OpenSSL has no memory. */
struct tls_session *tls_session_new(struct tls_server *s);
void tls_session_free(struct tls_session *t); /* NULL is fine */
/* bytes are borrowed until tls_read has said something else than TLS_BYTES. */
void tls_feed(struct tls_session *t, struct str bytes);
enum tls_step tls_read(struct tls_session *t, char *out, size_t size, size_t *n);
bool tls_is_up(const struct tls_session *t); /* the handshake is over */
/* All of the parts, in as few records as they fit in. False: no handshake yet, or it failed. */
MUST_USE bool tls_write(struct tls_session *t, const struct str *parts, size_t n_parts);
void tls_close_notify(
    struct tls_session *t); /* "this was all", once; no-op where it cannot be said */
/* To be sent; borrowed until tls_output_sent, which forgets it. */
struct str tls_output(const struct tls_session *t);
void tls_output_sent(struct tls_session *t);
/* Why it failed, or "". */
const char *tls_why(const struct tls_session *t);
