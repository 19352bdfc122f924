#pragma once
/* Whether a server of this machine is not there: a port of loopback that refuses connections will
 * not open while somebody waits for it, unless they start the server in the meantime. */
#include <stdbool.h>

/* url: its host is looked up. True: all its addresses are loopback's, and each refuses. */
bool bench_is_closed_here(const char *url);
