#pragma once
/* The connection that makes place where all connections, or all file descriptors, are taken: one
 * that waits for its client, which has no request open. Of the address (of IPv6 the network) with
 * most such connections it is the one that waits longest, so that a client that opens many loses
 * its own, and one with few keeps them. Where none waits, one goes that its client holds: a body
 * that comes, or an answer that is to be read. Finding it is of constant time, but for one pass
 * over the numbers of connections an address may have. Private to common/http. One thread. */
#include <stdbool.h>

struct conn;
struct http_server;
/* Closes one, but for spared (NULL: any), the newcomer. False: none can go.
 * - Of those that wait an idle one goes before one that has sent half a head, or that has been
 *   answered and still sends; those go after a second, or at once where spared is of an address
 *   with fewer. One whose next bytes have come, and are not read yet, stays.
 * - Then one that is held goes where spared's address has fewer connections in all: one of which
 *   no byte has moved for a second or, of an address that holds more than half of all connections,
 *   any. Of several of spared's own address one goes that has not moved for five seconds. */
bool places_make(struct http_server *s, struct conn *spared);
