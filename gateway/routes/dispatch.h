#pragma once
/* From a request's first line to its handler: its row, its key, whether it is let in. */
#include "gateway/routes/state.h"

/* Whether anybody will read its body: its route does, and its key lets it in. Else routes_dispatch
 * answers without. */
bool routes_reads_body(struct api_server *a, const struct http_request *r, bool on_admin_address);
/* How many bytes of a body are read: as many as the server takes where a route reads it and its key
 * lets it in, few where the route reads none, and 0 where routes_dispatch will refuse it. */
uint64_t routes_body_max(struct api_server *a, struct http_request *r, bool on_admin_address);
/* Finds the row, checks the key, and calls the handler or answers the error. */
void routes_dispatch(struct api_server *a, struct http_request *r, bool on_admin_address);
