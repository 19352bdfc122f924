#pragma once
/* The connection that makes place where all connections, or all file descriptors, are taken: one
 * that waits for its client, which has no request open. Of the address (of IPv6 the network) with
 * most such connections it is the one that waits longest, so that a client that opens many loses
 * its own, and one with few keeps them. Entering, leaving and finding are of constant time, but for
 * one pass over the numbers of connections an address may have. One thread. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/key_table.h"

struct conn;
struct http_server;
struct peer;

struct place { /* of a connection; all 0: it does not wait */
    struct peer *peer;
    struct conn *older, *newer; /* of the same address */
    uint64_t since_ms;          /* of the loop's time */
};

struct places {
    struct key_table peers; /* by address */
    struct peers { /* with n connections that wait, in the order in which they came to have n */
        struct peer *first, *last;
    } * by_n;
    uint32_t cap_n, most; /* none has more than most */
};

void places_init(struct places *p);
void places_fini(struct places *p); /* nobody waits any more */
void places_wait(struct conn *c);   /* it waits from now on, whether it did or not */
void places_stay(struct conn *c);   /* it does not wait; idempotent */
/* Closes one of those that wait, but for spared (NULL: any). False: none can go. One that is idle
 * goes before one that has sent half a head, or that has been answered and still sends; those go
 * after a second, or at once where spared is of an address with fewer. One whose next bytes have
 * come, and are not read yet, stays. */
bool places_make(struct http_server *s, struct conn *spared);
