#pragma once
/* Which of this host's addresses the way to another one leaves from. */
#include <stddef.h>

#include "common/base/status.h"

#define ROUTE_ADDRESS_MAX 64u

/* to: HOST:PORT or [V6]:PORT. out: numeric, without brackets and port. Asks the resolver and the
 * routing table; nothing is sent. STATUS_INVALID: not HOST:PORT; STATUS_IO: no such name or no way
 * there now. */
MUST_USE enum status route_local_address(const char *to, char out[ROUTE_ADDRESS_MAX],
                                         struct error *err);
