#pragma once
/* Method and path to handler, in one table (routes.c). Unknown paths are 404, known ones with
 * another method 405 with Allow, both as OpenAI's JSON; a row says whose key it needs (access.h).
 * Paths are matched byte by byte, as they were sent. */
#include "gateway/routes/route.h"

enum route_result { ROUTE_FOUND, ROUTE_NOT_FOUND, ROUTE_METHOD_NOT_ALLOWED };

/* HEAD finds GET's row. allow: the methods of the path, for 405. */
enum route_result routes_find(struct str method, struct str path, const struct http_route **out,
                              char allow[64]);
/* All rows, for tests and `cox-gateway routes`. */
const struct http_route *routes_all(size_t *n);
/* "METHOD PATH ACCESS" lines. */
void routes_print(struct strbuf *out);
