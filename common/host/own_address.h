#pragma once
/* Finds the local address that the route to another host uses. */
#include <stddef.h>

#include "common/base/status.h"

#define OWN_ADDRESS_MAX 64u

/* Writes the numeric address, without brackets and port. `to` is HOST:PORT or [V6]:PORT. The
 * function asks the resolver and the routing table, and sends nothing to the host. Returns
 * STATUS_INVALID when `to` is not HOST:PORT, STATUS_IO when the name is unknown or there is no
 * route now. */
MUST_USE enum status own_address_for(const char *to, char out[OWN_ADDRESS_MAX], struct error *err);
