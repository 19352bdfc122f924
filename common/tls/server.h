#pragma once
/* Keeps a server's certificate, key and client authorities. They are read from files, and read
 * again when those files change. Only the loop thread calls these functions. */
#include "common/base/str.h"

enum tls_client_certs { TLS_CERT_NONE, TLS_CERT_OPTIONAL, TLS_CERT_REQUIRED };

struct tls_options { /* the strings are borrowed for the server's life */
    const char *certfile;
    const char *keyfile;      /* file of the key; NULL = the key is in certfile */
    const char *key_password; /* password of the key; NULL = none */
    const char *ca_certs;     /* file with the authorities of client certificates; NULL = none */
    const char *ciphers; /* ciphers of TLS 1.2, in OpenSSL's form; NULL = forward secrecy only */
    enum tls_client_certs client_certs;
};

/* `tls_server` holds the current certificate. A session keeps the certificate with which it
 * began. */
struct tls_server;
/* Reads the certificate, key and authorities from their files. Returns STATUS_INVALID, with the
 * file and OpenSSL's reason, when a file is not usable. */
MUST_USE enum status tls_server_new(const struct tls_options *o, struct tls_server **out,
                                    struct error *err);
void tls_server_free(struct tls_server *s); /* s may be NULL; sessions may live on */
/* Checks whether the files have changed, and reads them when two checks in a row find the same
 * state. An error is returned once, and the old certificate stays. */
MUST_USE enum status tls_server_look(struct tls_server *s, bool *changed, struct error *err);
/* Returns the expiry date for people, such as "Nov 23 03:17:48 2027 GMT". */
const char *tls_server_expires(const struct tls_server *s);

/* Returns the expiry in s since 1970; 0 = unknown. */
int64_t tls_server_expires_s(const struct tls_server *s);

struct ssl_ctx_st; /* this struct is OpenSSL's SSL_CTX */
struct ssl_ctx_st *tls_server_context(const struct tls_server *s); /* the result is borrowed */
