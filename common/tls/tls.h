#pragma once
/* TLS of a server as bytes in, bytes out, without a socket: what came from the network goes in by
 * tls_feed, plain bytes come out of tls_read, and whatever is to be sent lies in tls_output, after
 * each call of this header. TLS 1.2 and 1.3, no renegotiation, no compression, no early data, ALPN
 * "http/1.1". A session holds a record that has come in part and what a handshake needs, and is
 * bounded: a first message over 16 KiB and certificates over 64 KiB of a client are refused.
 * Loop thread only. */
#include "common/base/str.h"

enum tls_client_certs { TLS_CERT_NONE, TLS_CERT_OPTIONAL, TLS_CERT_REQUIRED };

struct tls_options { /* borrowed for the server's life */
    const char *certfile;
    const char *keyfile;      /* NULL: in certfile */
    const char *key_password; /* NULL: none */
    const char *ca_certs;     /* whose clients' certificates are good; NULL: nobody's */
    const char *ciphers;      /* of TLS 1.2, in OpenSSL's words; NULL: those with forward secrecy */
    enum tls_client_certs client_certs;
};

/* The certificate in force. Sessions keep the one that they began with. */
struct tls_server;
/* STATUS_INVALID with the file and OpenSSL's words. */
MUST_USE enum status tls_server_new(const struct tls_options *o, struct tls_server **out,
                                    struct error *err);
void tls_server_free(struct tls_server *s); /* NULL is fine; sessions may live on */
/* Looks whether its files are others than were read, and reads them once they have been the same
 * for two looks. Not OK: they have an error, said once; the certificate stays. */
MUST_USE enum status tls_server_look(struct tls_server *s, bool *changed, struct error *err);
/* For people: "Nov 23 03:17:48 2027 GMT". */
const char *tls_server_expires(const struct tls_server *s);

int64_t tls_server_expires_s(const struct tls_server *s); /* since 1970; 0: not known */

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
