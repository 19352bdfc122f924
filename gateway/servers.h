#pragma once
/* Starts the HTTP servers, and handles the events of a request that they report from its first
 * byte to its answer. */
#include "gateway/routes/state.h"

/* Starts the public server, and the admin server when --admin-port is set. */
MUST_USE enum status servers_start(struct api_server *a, struct error *err);
/* Returns the bounds of the public server. */
struct http_limits servers_limits(const struct gateway_config *c);
