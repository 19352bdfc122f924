#pragma once
/* Place of a connection among those of its client's address. Private to common/http. */
#include <stdbool.h>
#include <stdint.h>

#include "common/collections/key_table.h"

struct conn;
struct places;

struct http_peer {        /* exists while a connection of the address is in its `places` */
    struct key_node node; /* key: address; must be first, a node pointer is a peer pointer */
    uint32_t n;
    struct conn *oldest, *newest;
    struct http_peer *prev, *next; /* neighbours among the peers with the same `n` */
};

struct conn_place { /* place of one connection; all 0 = none */
    struct places *in;
    struct http_peer *peer;
    struct conn *older, *newer; /* neighbours among those of the same address */
    uint64_t since_ms;          /* loop time in ms */
};

/* a server has two: for connections that wait, and for those held by their client */
struct places {
    struct key_table peers; /* key: address */
    /* by_n[n]: peers with n connections here, in the order in which they reached n */
    struct peers {
        struct http_peer *first, *last;
    } * by_n;
    uint32_t cap_n, most; /* most: the largest n of any peer */
};
