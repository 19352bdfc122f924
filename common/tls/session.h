#pragma once
/* Runs TLS for a server's connection without a socket. tls_feed takes received bytes, tls_read
 * returns plain bytes, and tls_output has the bytes to send after each call of this header. It
 * supports TLS 1.2 and 1.3 with ALPN "http/1.1", without renegotiation, compression and early
 * data.
 * A session holds at most a partial record and the data of a handshake. A first message over 16
 * KiB and client certificates over 64 KiB are refused. Only the loop thread calls these
 * functions. */
#include "common/base/str.h"

struct tls_server;
struct tls_session;
enum tls_step {
    TLS_MORE,   /* all bytes of tls_feed are used */
    TLS_BYTES,  /* some plain bytes were read; call again */
    TLS_CLOSED, /* the peer has announced that it will send no more */
    TLS_FAILED, /* the session is unusable; the output has the alert */
    TLS_NOT_TLS /* the session is unusable: the first bytes were a plain HTTP request */
};
/* Creates a session. Returns NULL when OpenSSL has no memory. */
struct tls_session *tls_session_new(struct tls_server *s);
void tls_session_free(struct tls_session *t); /* t may be NULL */
/* Passes received bytes to the session. `bytes` is borrowed until tls_read returns something
 * other than TLS_BYTES. */
void tls_feed(struct tls_session *t, struct str bytes);
enum tls_step tls_read(struct tls_session *t, char *out, size_t size, size_t *n);
bool tls_is_up(const struct tls_session *t); /* returns true when the handshake is complete */
/* Writes all parts in as few records as possible. Returns false before the handshake is complete
 * or when the session has failed. */
MUST_USE bool tls_write(struct tls_session *t, const struct str *parts, size_t n_parts);
void tls_close_notify(
    struct tls_session *t); /* sends close_notify once; has no effect when that is impossible */
/* Returns the bytes to send to the peer. They are borrowed until tls_output_sent, which drops
 * them. */
struct str tls_output(const struct tls_session *t);
void tls_output_sent(struct tls_session *t);
/* Returns the reason of the failure, or "". */
const char *tls_why(const struct tls_session *t);
