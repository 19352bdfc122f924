#pragma once
/* Describes one HTTP call: the request, the server, and the time limit for the answer. The
 * struct is plain data. All pointers are borrowed for the duration of the call. */
#include "common/base/str.h"

struct http_call {
    const char *method; /* method of the request; NULL = GET, or POST when there is a body */
    const char *url;
    const char *bearer;         /* token of the Authorization header; NULL = none */
    const char *const *headers; /* [n_headers] more headers, each "Name: value" */
    size_t n_headers;
    struct str body;
    /* Content-Type of `body`. NULL means application/json, and no body when `body` is empty. */
    const char *content_type;
    /* time limit for the whole call in ms; with on_data, the longest silence */
    uint32_t timeout_ms;
    const char *uds; /* Unix socket used in place of the URL's host and port; NULL = none */
    /* https: trusted certificates (NULL = the system's), and our own certificate and key if the
     * server requires one. */
    const char *ca_file, *cert_file, *key_file;
    /* true = never use a proxy; a server on this machine is always called directly */
    bool no_proxy;
    /* true = accept any certificate, for this machine or on the user's request */
    bool any_certificate;
    bool connect_only; /* true = only test whether a server listens (*status_code is 0) */
    struct http_session *session; /* session of the call; NULL = a connection of its own */
    /* Function that is called for each piece of the body. It returns false to stop. NULL = the
     * body is collected. */
    bool (*on_data)(void *ctx, struct str piece);
    void *ctx;
};
