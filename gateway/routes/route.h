#pragma once
/* A row of the table of routes (routes.h), and a call that found its row. */
#include "common/base/str.h"

struct api_key;
struct api_server;
struct dialect;
struct http_request;
struct http_route;

enum route_access {
    ACCESS_KEY, /* what a new row is unless it says otherwise */
    ACCESS_OPEN,
    ACCESS_PROBE,   /* a key of either kind; open at the admin address */
    ACCESS_ADMIN,   /* with the admin key, and not at all where there is none */
    ACCESS_METRICS, /* a key of either kind, unless --metrics-public; also where requests need none,
                       at the first of two addresses */
};

struct call { /* borrowed for the handler's call; the request lives until it is answered */
    struct http_request *request;
    const struct http_route *row;
    struct api_key *key; /* whose it is; NULL: nobody's */
};

struct http_route {
    const char *method, *path; /* a star: one segment; two: whatever follows */
    enum route_access access;
    void (*handle)(struct api_server *a, const struct call *c);
    const struct dialect *dialect; /* what is asked and answered in; NULL: OpenAI's errors */
};
