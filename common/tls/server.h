#pragma once
/* A server's certificate, key and the authorities of its clients: read from files, and read again
 * when they change. Loop thread only. */
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

struct ssl_ctx_st;                                                 /* OpenSSL's SSL_CTX */
struct ssl_ctx_st *tls_server_context(const struct tls_server *s); /* borrowed */
