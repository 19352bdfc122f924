#pragma once
/* The connection that makes place where all connections, or all file descriptors, are taken: one
 * that waits for its client, which has no request open. Of the address (of IPv6 the network) with
 * most such connections it is the one that waits longest, so that a client that opens many loses
 * its own, and one with few keeps them. Where none waits, one goes that its client holds: a body
 * that comes, or an answer that is to be read. Entering, leaving and finding are of constant time,
 * but for one pass over the numbers of connections an address may have. One thread. */
#include <stdbool.h>
#include <stdint.h>

#include "common/collections/key_table.h"

struct conn;
struct http_server;
struct peer;
struct places;
struct sockaddr_storage;

struct place { /* of a connection; all 0: it is in none */
    struct places *in;
    struct peer *peer;
    struct conn *older, *newer; /* of the same address */
    uint64_t since_ms;          /* of the loop's time */
};

struct places { /* a server has two: of connections that wait, and of those that are held */
    struct key_table peers; /* by address */
    struct peers { /* with n connections in here, in the order in which they came to have n */
        struct peer *first, *last;
    } * by_n;
    uint32_t cap_n, most; /* none has more than most */
};

void places_init(struct places *p);
void places_fini(struct places *p); /* nobody waits any more */
void places_wait(struct conn *c);   /* it waits from now on, whether it did or not */
/* Its client holds it, and has just moved a byte: of a body, or of an answer that is complete. */
void places_hold(struct conn *c);
void places_stay(struct conn *c); /* it neither waits nor is held; idempotent */
/* A client's address as a number that is not 0: of IPv6 the network, of which a client has all. */
uint64_t places_address(const struct sockaddr_storage *a, uint64_t seed);
/* Closes one, but for spared (NULL: any), the newcomer. False: none can go.
 * - Of those that wait an idle one goes before one that has sent half a head, or that has been
 *   answered and still sends; those go after a second, or at once where spared is of an address
 *   with fewer. One whose next bytes have come, and are not read yet, stays.
 * - Then one that is held goes where spared's address has fewer connections in all: one of which
 *   no byte has moved for a second or, of an address that holds more than half of all connections,
 *   any. Of several of spared's own address one goes that has not moved for five seconds. */
bool places_make(struct http_server *s, struct conn *spared);
