#pragma once
/* Connections by their client's address, in the order in which they began to wait or to be held
 * by the client. To enter and to leave take constant time. Private to common/http. One thread. */
#include "common/http/conn/place.h"

void places_init(struct places *p);
void places_fini(struct places *p); /* no connection may be left in it */
void places_wait(struct conn *c);   /* starts a new wait, also when it waits already */
/* Its client holds the connection and has just moved a byte of a body or of a complete answer. */
void places_hold(struct conn *c);
void places_stay(struct conn *c); /* leaves both lists; idempotent */
/* Returns NULL when no connection of this address is in `p`. */
struct http_peer *places_find(const struct places *p, uint64_t address);
