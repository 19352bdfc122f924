#pragma once
/* Defines the address and credentials of a gateway, and their options. Every command that is a
 * client of the gateway has these options. */
#include "common/config/config.h"
#include "common/http/client/client.h"

#define GATEWAY_USUAL_URL "http://127.0.0.1:8000" /* default of --url */

struct gateway_access {
    const char *url, *api_key;
    /* files of the TLS connection, and the Unix socket; NULL = not given */
    const char *cacert, *cert, *key, *uds;
    bool insecure; /* the user accepts any certificate */
};

/* `GATEWAY_ACCESS_ROWS` lists the option rows for a struct S with a gateway_access called
 * `gateway`. */
#define GATEWAY_ACCESS_ROWS(S)                                                                     \
    OPT_STRING(S, gateway.url, "url", GATEWAY_USUAL_URL, "URL of a gateway."),                     \
        OPT_STRING(S, gateway.cacert, "cacert", NULL,                                              \
                   "File with the certificate authority of the gateway (PEM), for https."),        \
        OPT_STRING(                                                                                \
            S, gateway.cert, "cert", NULL,                                                         \
            "File with a client certificate for a gateway that requires one (PEM), for https."),   \
        OPT_STRING(S, gateway.key, "key", NULL,                                                    \
                   "File with the private key of --cert (PEM). Default: the key is in --cert."),   \
        OPT_STRING(S, gateway.uds, "uds", NULL,                                                    \
                   "Path of the gateway's Unix socket. With this option only the scheme of --url " \
                   "is used."),                                                                    \
    {                                                                                              \
        .name = "api-key", .type = OPTION_STRING, .offset = offsetof(struct S, gateway.api_key),   \
        .env = "VLLM_API_KEY,OPENAI_API_KEY",                                                      \
        .help = "API key of the gateway. Prefer COX_API_KEY, VLLM_API_KEY or OPENAI_API_KEY, "     \
                "since other users can see a command line.",                                       \
        .secret = true                                                                             \
    }

/* Returns the start of an HTTP call to `url` with these credentials. All strings are borrowed. */
static inline struct http_call gateway_access_call(const struct gateway_access *a, const char *url)
{
    return (struct http_call){.url = url,
                              .bearer = a->api_key,
                              .uds = a->uds,
                              .ca_file = a->cacert,
                              .cert_file = a->cert,
                              .key_file = a->key,
                              .any_certificate = a->insecure};
}
