#pragma once
/* Tells whether a server on this machine is missing. When a loopback port refuses connections,
 * waiting does not help unless a person starts the server in the meantime. */
#include <stdbool.h>

/* Looks up the URL's host. Returns true when all its addresses are loopback addresses and each
 * refuses a connection. */
bool bench_is_closed_here(const char *url);
