#pragma once
/* Declares how the ranks of a group connect to each other. Every rank listens all the time. At
 * each formation rank r connects to the lower ranks, one after the other, and then accepts the
 * higher ones. All functions run on the compute thread, except join_listen. */
#include "worker/comm/state.h"

/* Listens on `host` and `port`; port 0 lets the kernel choose. Sets *address to the resulting
 * address. */
MUST_USE enum status join_listen(const char *host, uint16_t port, int *fd,
                                 char address[COMM_ADDRESS_MAX], struct error *err);
/* Gives every peer of c->exchange its link. After an error the caller closes the links made so
 * far. The caller has checked `g`. */
MUST_USE enum status join_peers(struct comm *c, const struct comm_group *g, uint64_t deadline_ns,
                                struct error *err);
