#pragma once
/* Describes the position of a connection in the list of its client's address. Only common/http
 * includes this header. */
#include <stdbool.h>
#include <stdint.h>

#include "common/collections/key_table.h"

struct conn;
struct places;

struct http_peer { /* a peer exists while a connection of its address is in its `places` */
    /* node with the address as key; must be first, since a pointer to it is used as a pointer to
     * the peer */
    struct key_node node;
    uint32_t n;
    struct conn *oldest, *newest;
    struct http_peer *prev, *next; /* neighbours among the peers with the same `n` */
};

struct conn_place { /* position of one connection; all 0 = the connection is in no list */
    struct places *in;
    struct http_peer *peer;
    struct conn *older, *newer; /* neighbours among the connections of the same address */
    uint64_t since_ms;          /* loop time at which the connection entered, in ms */
};

/* `places` is a list of connections by address. A server has two: for connections that wait, and
 * for connections that their client holds. */
struct places {
    struct key_table peers; /* peers of this list; the key is the address */
    /* by_n[n] lists the peers with n connections here, in the order in which they reached n */
    struct peers {
        struct http_peer *first, *last;
    } * by_n;
    uint32_t cap_n, most; /* `cap_n` is the size of by_n; `most` is the largest n of any peer */
};
