#pragma once
/* Leads a request from its request line to its handler: finds its row, checks its key, decides
 * its access. */
#include "gateway/routes/state.h"

/* Returns true when the body will be read, because the route needs one and access is granted.
 * Otherwise `routes_dispatch` answers without a body. */
bool routes_reads_body(struct api_server *a, const struct http_request *r, bool on_admin_address);
/* Returns the most bytes of a body to accept. Routes with a large body return UINT64_MAX (the
 * server's own limit), and calls about adapters a small limit. Returns 0 when no body is read or
 * the request will be refused. */
uint64_t routes_body_max(struct api_server *a, struct http_request *r, bool on_admin_address);
/* Finds the request's row, checks the key, and calls the handler or answers with an error. */
void routes_dispatch(struct api_server *a, struct http_request *r, bool on_admin_address);
