#pragma once
/* Rows for TLS of the gateways, with the names of uvicorn and vLLM. cox-gateway and cox up share
 * them. S has a `struct ssl_options ssl`. */
#include "common/config/config.h"

struct ssl_options {
    const char *certfile, *keyfile, *keyfile_password, *ca_certs, *ciphers; /* NULL = none */
    int64_t cert_reqs; /* 0 = not asked for, 1 = optional, 2 = required */
    bool refresh;
};

#define ROWS_SSL(S)                                                                                \
    OPT_STRING(S, ssl.certfile, "ssl-certfile", NULL,                                              \
               "certificate and the chain behind it (PEM): HTTPS in place of HTTP, also at the "   \
               "admin address"),                                                                   \
        OPT_STRING(S, ssl.keyfile, "ssl-keyfile", NULL,                                            \
                   "its private key (PEM); default: in --ssl-certfile"),                           \
        {.name = "ssl-keyfile-password",                                                           \
         .type = OPTION_STRING,                                                                    \
         .offset = offsetof(struct S, ssl.keyfile_password),                                       \
         .help = "of the private key (better: COX_SSL_KEYFILE_PASSWORD)",                          \
         .secret = true},                                                                          \
        OPT_STRING(S, ssl.ca_certs, "ssl-ca-certs", NULL,                                          \
                   "authorities whose certificates of clients are good (PEM)"),                    \
        OPT_INT(S, ssl.cert_reqs, "ssl-cert-reqs", 0, 2, "0",                                      \
                "certificates of clients: 0: not asked for; 1: looked at if there is one; 2: "     \
                "must be"),                                                                        \
        OPT_STRING(S, ssl.ciphers, "ssl-ciphers", NULL,                                            \
                   "of TLS 1.2, in OpenSSL's words; default: those with forward secrecy"),         \
        OPT_BOOL(S, ssl.refresh, "enable-ssl-refresh", "true",                                     \
                 "read these files again when they change")
