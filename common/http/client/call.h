#pragma once
/* One HTTP call: what is asked, of whom, and how long an answer is waited for. Plain data, borrowed
 * by whoever makes the call. */
#include "common/base/str.h"

struct http_call {
    const char *method; /* NULL: GET, or POST with a body */
    const char *url;
    const char *bearer;         /* NULL: none */
    const char *const *headers; /* [n_headers] further ones, "Name: value" */
    size_t n_headers;
    struct str body;
    /* The type of body; NULL: application/json, and no body when it is empty. */
    const char *content_type;
    uint32_t timeout_ms; /* whole call; for a stream: the longest silence */
    const char *uds;     /* a Unix socket's path in place of the URL's host and port; NULL: none */
    /* https: whose certificates are good (NULL: the system's), and our own where one is wanted. */
    const char *ca_file, *cert_file, *key_file;
    bool no_proxy;        /* never one of the environment's; of this machine none is taken anyway */
    bool any_certificate; /* for what is on this machine, or where the user asked for it */
    bool connect_only;    /* asks nothing: whether somebody listens there (*status_code is 0) */
    /* streaming: called for each piece; return false to stop. NULL: collected into the answer. */
    bool (*on_data)(void *ctx, struct str piece);
    void *ctx;
};
