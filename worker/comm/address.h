#pragma once
/* Converts the address that a rank listens on between text and socket address. */
#include <sys/socket.h>

#include "worker/comm/group.h"

struct address {
    struct sockaddr_storage sa;
    socklen_t n;
};

/* Parses the numeric address of a peer, such as "10.0.0.1:4123" or "[::1]:4123", with a port
 * above 0. Returns STATUS_INVALID with a text that quotes the address. */
MUST_USE enum status address_parse(struct str text, struct address *out, struct error *err);
/* Resolves a host of this machine with `port`. The host is a name or numeric ("[::1]" or "::1").
 * Refuses wildcards, because no peer could connect to them. */
MUST_USE enum status address_resolve(const char *host, uint16_t port, struct address *out,
                                     struct error *err);
/* Writes HOST:PORT to `out`. Returns STATUS_INVALID when the address is neither IPv4 nor IPv6. */
MUST_USE enum status address_format(const struct address *a, char out[COMM_ADDRESS_MAX],
                                    struct error *err);
