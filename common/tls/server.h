#pragma once
/* A server's certificate, key and client authorities. They are read from files, and read again
 * when those change. Loop thread only. */
#include "common/base/str.h"

enum tls_client_certs { TLS_CERT_NONE, TLS_CERT_OPTIONAL, TLS_CERT_REQUIRED };

struct tls_options { /* strings are borrowed for the server's life */
    const char *certfile;
    const char *keyfile;      /* NULL = the key is in certfile */
    const char *key_password; /* NULL = none */
    const char *ca_certs;     /* authorities of client certificates; NULL = none */
    const char *ciphers; /* ciphers of TLS 1.2, in OpenSSL's form; NULL = forward secrecy only */
    enum tls_client_certs client_certs;
};

/* The current certificate. A session keeps the certificate with which it began. */
struct tls_server;
/* Returns STATUS_INVALID, with the file and OpenSSL's reason, when a file is not usable. */
MUST_USE enum status tls_server_new(const struct tls_options *o, struct tls_server **out,
                                    struct error *err);
void tls_server_free(struct tls_server *s); /* NULL is allowed; sessions may live on */
/* Checks whether the files have changed, and reads them once two checks in a row see the same
 * state. An error is returned once, and the old certificate stays. */
MUST_USE enum status tls_server_look(struct tls_server *s, bool *changed, struct error *err);
/* Returns the expiry date for people: "Nov 23 03:17:48 2027 GMT". */
const char *tls_server_expires(const struct tls_server *s);

int64_t tls_server_expires_s(const struct tls_server *s); /* s since 1970; 0 = unknown */

struct ssl_ctx_st;                                                 /* OpenSSL's SSL_CTX */
struct ssl_ctx_st *tls_server_context(const struct tls_server *s); /* borrowed */
