#pragma once
/* Method and path to handler, in one table (routes.c). Unknown paths are 404, known ones with
 * another method 405 with Allow, both as OpenAI's JSON; a row says whose key it needs (access.h).
 * Paths are matched byte by byte, as they were sent. */
#include "common/base/str.h"

struct dialect;
struct gateway;
struct http_request;
struct serving_request;

enum route_access {
    ACCESS_KEY, /* what a new row is unless it says otherwise */
    ACCESS_OPEN,
    ACCESS_PROBE,   /* a key of either kind; open at the admin address */
    ACCESS_ADMIN,   /* with the admin key, and not at all where there is none */
    ACCESS_METRICS, /* a key of either kind, unless --metrics-public; also where requests need none,
                       at the first of two addresses */
};

struct route {
    const char *method, *path; /* a star: one segment; two: whatever follows */
    enum route_access access;
    void (*handle)(struct gateway *g, struct http_request *r, const struct route *row,
                   uint64_t tenant);
    const struct dialect *dialect; /* what is asked and answered in; NULL: OpenAI's errors */
};

enum route_result { ROUTE_FOUND, ROUTE_NOT_FOUND, ROUTE_METHOD_NOT_ALLOWED };

/* HEAD finds GET's row. allow: the methods of the path, for 405. */
enum route_result routes_find(struct str method, struct str path, const struct route **out,
                              char allow[64]);
/* All rows, for tests and `cox-gateway routes`. */
const struct route *routes_all(size_t *n);
/* "METHOD PATH ACCESS" lines. */
void routes_print(struct strbuf *out);
/* What serving is asked, filled from the request and its key; a handler changes what it must. */
struct serving_request routes_request(struct gateway *g, struct http_request *r,
                                      const struct dialect *d, uint64_t tenant);
/* Whether anybody will read its body: its route does, and its key lets it in. Else routes_dispatch
 * answers without. */
bool routes_reads_body(struct gateway *g, const struct http_request *r, bool on_admin_address);
/* How many bytes of a body are read: as many as the server takes where a route reads it and its key
 * lets it in, few where the route reads none, and 0 where routes_dispatch will refuse it. */
uint64_t routes_body_max(struct gateway *g, struct http_request *r, bool on_admin_address);
/* Finds the row, checks the key, and calls the handler or answers the error. */
void routes_dispatch(struct gateway *g, struct http_request *r, bool on_admin_address);
