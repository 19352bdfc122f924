#pragma once
/* Recognises names and addresses that only this machine can reach. Clients at such an address
 * need no key. So no name is resolved, and a name that merely resembles a local name is refused. */
#include "common/base/str.h"

/* Returns true for "localhost" in any case, 127.0.0.0/8 in four decimal parts, and ::1 in any
 * spelling, also in brackets. Returns false for "127.0.0.1.example.org", "127.1" or "localhost." */
bool host_is_loopback(struct str host);
/* Returns HOST of "HOST", "HOST:PORT" or "[IPV6]:PORT" (with the brackets), which are the forms
 * of HTTP's Host header. Returns an empty str for any other text. The result points into the
 * argument. */
struct str authority_host(struct str authority);
