#pragma once
/* How ranks find each other: every rank listens all the time; at each formation rank r connects to
 * the ranks below it, one after the other, and then takes the connections of those above. Compute
 * thread, but for join_listen. */
#include "worker/comm/state.h"

/* On `host`, at `port` or, for 0, one that the kernel picks; *address says where. */
MUST_USE enum status join_listen(const char *host, uint16_t port, int *fd,
                                 char address[COMM_ADDRESS_MAX], struct error *err);
/* Gives every peer of c->exchange its link. What was made before an error is the caller's to
 * close. g has been checked. */
MUST_USE enum status join_peers(struct comm *c, const struct comm_group *g, uint64_t deadline_ns,
                                struct error *err);
