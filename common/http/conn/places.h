#pragma once
/* Connections in the order in which they came to wait, or to be held, by their client's address.
 * Entering and leaving are of constant time. Private to common/http. One thread. */
#include "common/http/conn/place.h"

void places_init(struct places *p);
void places_fini(struct places *p); /* nobody waits any more */
void places_wait(struct conn *c);   /* it waits from now on, whether it did or not */
/* Its client holds it, and has just moved a byte: of a body, or of an answer that is complete. */
void places_hold(struct conn *c);
void places_stay(struct conn *c); /* it neither waits nor is held; idempotent */
/* NULL: none of this address is in there. */
struct http_peer *places_find(const struct places *p, uint64_t address);
