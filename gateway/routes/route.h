#pragma once
/* `http_route` is a row of the table of routes (routes.h), and `call` is a request for which a
 * row was found. */
#include "common/base/str.h"

struct api_key;
struct api_server;
struct dialect;
struct http_request;
struct http_route;

enum route_access {
    ACCESS_KEY, /* needs an API key; the default of a new row */
    ACCESS_OPEN,
    ACCESS_PROBE, /* needs either kind of key; open at the admin address */
    ACCESS_ADMIN, /* needs the admin key; without a configured admin key no client has access */
    /* Needs a key of either kind, except with --metrics-public. When metrics have an address of
     * their own and no keys exist, the public address does not serve them. */
    ACCESS_METRICS,
};

struct call { /* one call of a handler, borrowed; the request lives until it is answered */
    struct http_request *request;
    const struct http_route *row;
    struct api_key *key; /* key of the caller; NULL = none */
};

struct http_route {
    const char *method, *path; /* `path` is a pattern: * is one segment and ** is any rest */
    enum route_access access;
    void (*handle)(struct api_server *a, const struct call *c);
    /* dialect of body and answer; NULL = errors have OpenAI's form */
    const struct dialect *dialect;
};
