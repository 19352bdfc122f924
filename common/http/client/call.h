#pragma once
/* One HTTP call: the request, the server, and the time limit for the answer. Plain data; all
 * pointers are borrowed for the duration of the call. */
#include "common/base/str.h"

struct http_call {
    const char *method; /* NULL = GET, or POST when there is a body */
    const char *url;
    const char *bearer;         /* token of the Authorization header; NULL = none */
    const char *const *headers; /* [n_headers] more headers, "Name: value" */
    size_t n_headers;
    struct str body;
    /* Content-Type of `body`. NULL means application/json, and no body when `body` is empty. */
    const char *content_type;
    uint32_t timeout_ms; /* ms for the whole call; with on_data: the longest silence */
    const char *uds;     /* Unix socket used in place of the URL's host and port; NULL = none */
    /* https: trusted certificates (NULL = the system's), and our own certificate and key if the
     * server requires one. */
    const char *ca_file, *cert_file, *key_file;
    bool no_proxy;        /* never use a proxy; for this machine none is used anyway */
    bool any_certificate; /* accept any certificate: for this machine, or on the user's request */
    bool connect_only;    /* only test whether a server listens (*status_code is 0) */
    /* Called for each piece of the body; return false to stop. NULL = the body is collected. */
    bool (*on_data)(void *ctx, struct str piece);
    void *ctx;
};
