#pragma once
/* The address of this host from which the way to another one leaves. */
#include <stddef.h>

#include "common/base/status.h"

#define OWN_ADDRESS_MAX 64u

/* to: HOST:PORT or [V6]:PORT. out: numeric, without brackets and port. Asks the resolver and the
 * routing table; nothing is sent. STATUS_INVALID: not HOST:PORT; STATUS_IO: no such name or no way
 * there now. */
MUST_USE enum status own_address_for(const char *to, char out[OWN_ADDRESS_MAX], struct error *err);
