#pragma once
/* The HTTP servers, and what they tell of a request from its first byte to its answer. */
#include "gateway/routes/state.h"

/* Both of them, where --admin-port asks for the second. */
MUST_USE enum status servers_start(struct api_server *a, struct error *err);
/* The first server's bounds. */
struct http_limits servers_limits(const struct gateway_config *c);
