#pragma once
/* Finds the handler for a method and a path in one table (routes.c). Unknown paths get a 404,
 * and known paths with another method get a 405 with Allow, both as OpenAI's JSON. A row states
 * the kind of key that it needs (access.h). Paths are compared byte by byte, without decoding. */
#include "gateway/routes/route.h"

enum route_result { ROUTE_FOUND, ROUTE_NOT_FOUND, ROUTE_METHOD_NOT_ALLOWED };

/* Finds the row for a method and a path. HEAD finds GET's row. `allow` gets the methods of the
 * path, for a 405. */
enum route_result routes_find(struct str method, struct str path, const struct http_route **out,
                              char allow[64]);
/* Returns all rows, for tests and `cox-gateway routes`. */
const struct http_route *routes_all(size_t *n);
/* Appends one "METHOD PATH ACCESS" line per row. */
void routes_print(struct strbuf *out);
