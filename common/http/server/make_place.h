#pragma once
/* Chooses the connection to close when all connections, or all file descriptors, are in use. The
 * first choice is a connection that waits for its client and has no request open. Among these,
 * the address (for IPv6 the network) with the most such connections loses its longest-waiting
 * connection. So a client that opens many connections loses its own, and a client with few keeps
 * them.
 * If no connection waits, a connection that its client holds is closed: a body that arrives, or
 * an answer that is being read. The choice takes constant time, except for one pass over the
 * possible numbers of connections of one address. Only common/http uses this header. Only one
 * thread at a time may use a server. */
#include <stdbool.h>

struct conn;
struct http_server;
/* Closes one connection, but never `spared`, the new connection (NULL = none). Returns false
 * when no connection can be closed.
 * - First choice: a connection that waits for its client. An idle connection is closed before one
 * that has sent half of its headers or that lingers after its last answer. Those two are closed
 * after one second, or at once when spared's address has fewer connections. A connection with
 * unread bytes stays.
 * - Second choice: a connection held by a client whose address has more connections than
 *   spared's. No byte of it has moved for a second. Any connection is closed when its address has
 * more than half of all connections.
 * - Last choice: a connection of spared's own address that has not moved for five seconds, when the
 *   address has several. */
bool places_make(struct http_server *s, struct conn *spared);
