#pragma once
/* A connection's place among those of its client's address. Private to common/http. */
#include <stdbool.h>
#include <stdint.h>

#include "common/collections/key_table.h"

struct conn;
struct places;

struct http_peer {        /* there is one while a connection of the address is in its places */
    struct key_node node; /* by its address; first: a peer is its node */
    uint32_t n;
    struct conn *oldest, *newest;
    struct http_peer *prev, *next; /* with the same n */
};

struct conn_place { /* of a connection; all 0: it is in none */
    struct places *in;
    struct http_peer *peer;
    struct conn *older, *newer; /* of the same address */
    uint64_t since_ms;          /* of the loop's time */
};

struct places { /* a server has two: of connections that wait, and of those that are held */
    struct key_table peers; /* by address */
    struct peers { /* with n connections in here, in the order in which they came to have n */
        struct http_peer *first, *last;
    } * by_n;
    uint32_t cap_n, most; /* none has more than most */
};
