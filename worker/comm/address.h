#pragma once
/* Where a rank listens, as text and as the system takes it. */
#include <sys/socket.h>

#include "worker/comm/group.h"

struct address {
    struct sockaddr_storage sa;
    socklen_t n;
};

/* "10.0.0.1:4123", "[::1]:4123": numeric, of a peer, port > 0. STATUS_INVALID says what it was. */
MUST_USE enum status address_parse(struct str text, struct address *out, struct error *err);
/* A host of this machine, a name or numeric ("[::1]" as well as "::1"), with that port. Refuses the
 * wildcards: no peer could connect to them. */
MUST_USE enum status address_resolve(const char *host, uint16_t port, struct address *out,
                                     struct error *err);
/* STATUS_INVALID when it is neither IPv4 nor IPv6. */
MUST_USE enum status address_format(const struct address *a, char out[COMM_ADDRESS_MAX],
                                    struct error *err);
