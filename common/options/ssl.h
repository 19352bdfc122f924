#pragma once
/* Defines rows for TLS of the gateways, with the names of uvicorn and vLLM. cox-gateway and cox
 * up share them. S has a `struct ssl_options ssl`. */
#include "common/config/config.h"

struct ssl_options {
    /* file names, password and cipher list; NULL = none */
    const char *certfile, *keyfile, *keyfile_password, *ca_certs, *ciphers;
    int64_t cert_reqs; /* client certificate: 0 = not requested, 1 = optional, 2 = required */
    bool refresh;
};

#define ROWS_SSL(S)                                                                                \
    OPT_STRING(S, ssl.certfile, "ssl-certfile", NULL,                                              \
               "File with the server's certificate and its chain (PEM). It turns on HTTPS, also "  \
               "at the admin address."),                                                           \
        OPT_STRING(S, ssl.keyfile, "ssl-keyfile", NULL,                                            \
                   "File with the private key of --ssl-certfile (PEM). Default: the key is in "    \
                   "--ssl-certfile."),                                                             \
        {.name = "ssl-keyfile-password",                                                           \
         .type = OPTION_STRING,                                                                    \
         .offset = offsetof(struct S, ssl.keyfile_password),                                       \
         .help = "Password of the private key. Prefer COX_SSL_KEYFILE_PASSWORD, since other "      \
                 "users can see a command line.",                                                  \
         .secret = true},                                                                          \
        OPT_STRING(                                                                                \
            S, ssl.ca_certs, "ssl-ca-certs", NULL,                                                 \
            "File with the certificate authorities that may issue client certificates (PEM)."),    \
        OPT_INT(S, ssl.cert_reqs, "ssl-cert-reqs", 0, 2, "0",                                      \
                "Check of client certificates. 0 = no certificate is requested. 1 = a "            \
                "certificate is checked if the client sends one. 2 = a certificate is required."), \
        OPT_STRING(                                                                                \
            S, ssl.ciphers, "ssl-ciphers", NULL,                                                   \
            "Ciphers of TLS 1.2, in OpenSSL's format. Default: those with forward secrecy."),      \
        OPT_BOOL(S, ssl.refresh, "enable-ssl-refresh", "true",                                     \
                 "Read the certificate and key files again when they change.")
