#pragma once
/* Keeps a chained hash table of objects by a 64-bit key that the caller supplies. The table
 * grows with the number of objects. The owner of an object embeds the node at its beginning and
 * keeps the object. The table allocates only the buckets. Different keys may be equal in any of
 * their bits. A client that chooses keys freely could fill one bucket, so its keys must be
 * hashes with a secret. Only one thread at a time may use a table. */
#include <stdint.h>

struct key_node {
    uint64_t key;
    struct key_node *next; /* next node of the same bucket */
};

struct key_table { /* a table of zero bytes is empty */
    struct key_node **buckets;
    uint32_t n, n_buckets; /* n_buckets is 0 or a power of two */
};

void key_table_fini(struct key_table *t); /* Frees the buckets; the table must be empty. */
/* Finds an object by its key. Returns NULL when the table has no such key. */
struct key_node *key_table_find(const struct key_table *t, uint64_t key);
/* Adds an object, whose key must be new. */
void key_table_add(struct key_table *t, struct key_node *node);
void key_table_remove(struct key_table *t, struct key_node *node);
