#pragma once
/* Tests whether no server listens on a loopback port. When the port refuses connections, waiting
 * for the server is useless. */
#include <stdbool.h>

/* Looks up the URL's host. Returns true when all its addresses are loopback addresses and each
 * refuses a connection. */
bool bench_is_closed_here(const char *url);
