#pragma once
/* Lists connections by their client's address, in the order in which they began to wait or to be
 * held by the client. Entering and leaving take constant time. Only common/http includes this
 * header. Only one thread at a time may use a `struct places`. */
#include "common/http/conn/place.h"

void places_init(struct places *p);
void places_fini(struct places *p); /* frees the list; it must contain no connection */
void places_wait(struct conn *c);   /* starts a new wait, also when the connection waits already */
/* Marks the connection as held by its client. Call this function when a byte of a body or of a
 * complete answer has just been transferred. */
void places_hold(struct conn *c);
void places_stay(struct conn *c); /* removes the connection from both lists; idempotent */
/* Finds the peer of an address. Returns NULL when no connection of this address is in `p`. */
struct http_peer *places_find(const struct places *p, uint64_t address);
