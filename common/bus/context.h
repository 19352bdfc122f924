#pragma once
/* Keeps ZeroMQ's contexts. A context has two threads. A gateway of several models has a DEALER for
 * each, so all DEALERs of the process share one context. A ROUTER has its own, because its ZAP
 * handler belongs to the context. Any thread may call these functions. */
#include <stdbool.h>

#include "common/base/status.h"

MUST_USE enum status bus_context_open(bool is_router, void **out, struct error *err);
/* Gives the context back after its sockets were closed. Its last user ends it, and waits at most
 * for the time of bus_linger. `context` may be NULL. */
void bus_context_close(bool is_router, void *context);
