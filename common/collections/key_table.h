#pragma once
/* Objects by a number that is given from outside: a chained hash table, which grows with them.
 * Their owner embeds a node at their beginning and keeps them; nothing is allocated here but the
 * buckets. Keys may be alike in any of their bits. A client that may choose them freely could
 * choose those that meet in a bucket: there they are to be hashes with a secret. One thread. */
#include <stdint.h>

struct key_node {
    uint64_t key;
    struct key_node *next; /* in its bucket */
};

struct key_table { /* all 0: empty */
    struct key_node **buckets;
    uint32_t n, n_buckets; /* n_buckets: 0, or a power of two */
};

void key_table_fini(struct key_table *t); /* empty it is */
/* NULL: there is none. */
struct key_node *key_table_find(const struct key_table *t, uint64_t key);
void key_table_add(struct key_table *t, struct key_node *node); /* of a key that is not there */
void key_table_remove(struct key_table *t, struct key_node *node);
