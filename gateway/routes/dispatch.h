#pragma once
/* From a request's first line to its handler: its row, its key, its access. */
#include "gateway/routes/state.h"

/* Returns true when the body will be read: the route needs one, and access is granted. Otherwise
 * `routes_dispatch` answers without it. */
bool routes_reads_body(struct api_server *a, const struct http_request *r, bool on_admin_address);
/* Returns the bytes of a body to accept. UINT64_MAX (the server's own limit) for routes with a
 * large body, a small limit for calls about adapters, and 0 when no body is read or the request
 * will be refused. */
uint64_t routes_body_max(struct api_server *a, struct http_request *r, bool on_admin_address);
/* Finds the row, checks the key, and calls the handler or answers with an error. */
void routes_dispatch(struct api_server *a, struct http_request *r, bool on_admin_address);
