#pragma once
/* A row of the table of routes (routes.h), and a call for which a row was found. */
#include "common/base/str.h"

struct api_key;
struct api_server;
struct dialect;
struct http_request;
struct http_route;

enum route_access {
    ACCESS_KEY, /* the default of a new row */
    ACCESS_OPEN,
    ACCESS_PROBE, /* either kind of key; open at the admin address */
    ACCESS_ADMIN, /* the admin key only; nobody has access without one configured */
    /* Either kind of key, except with --metrics-public. With two addresses the public one always
     * needs a key. */
    ACCESS_METRICS,
};

struct call { /* borrowed by the handler; the request lives until it is answered */
    struct http_request *request;
    const struct http_route *row;
    struct api_key *key; /* key of the caller; NULL = none */
};

struct http_route {
    const char *method, *path; /* in `path`, * is one segment and ** is any rest */
    enum route_access access;
    void (*handle)(struct api_server *a, const struct call *c);
    const struct dialect *dialect; /* dialect of body and answer; NULL = OpenAI's errors */
};
