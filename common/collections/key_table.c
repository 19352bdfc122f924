#include "common/collections/key_table.h"

#include <assert.h>

#include "common/base/mem.h"
#include "common/collections/mix.h"

enum { BUCKETS_MIN = 64 };

void key_table_fini(struct key_table *t)
{
    assert(t->n == 0);
    mem_free(t->buckets);
    *t = (struct key_table){0};
}

/* The function first mixes the key's bits, because different keys may be equal in any of their
 * bits. */
static struct key_node **bucket_of(const struct key_table *t, uint64_t key)
{
    return &t->buckets[mix_bits(key) & (t->n_buckets - 1)];
}

static void push(struct key_table *t, struct key_node *node)
{
    struct key_node **bucket = bucket_of(t, node->key);
    node->next = *bucket;
    *bucket = node;
}

static void grow(struct key_table *t)
{
    struct key_node **old = t->buckets;
    const uint32_t n_old = t->n_buckets;
    t->n_buckets = n_old ? n_old * 2 : BUCKETS_MIN;
    t->buckets = mem_zalloc(t->n_buckets * sizeof(struct key_node *));
    for (uint32_t i = 0; i < n_old; i++)
        for (struct key_node *node = old[i], *next; node; node = next) {
            next = node->next;
            push(t, node);
        }
    mem_free(old);
}

struct key_node *key_table_find(const struct key_table *t, uint64_t key)
{
    struct key_node *node = t->n_buckets ? *bucket_of(t, key) : NULL;
    while (node && node->key != key)
        node = node->next;
    return node;
}

void key_table_add(struct key_table *t, struct key_node *node)
{
    if (t->n == t->n_buckets)
        grow(t);
    push(t, node);
    t->n++;
}

void key_table_remove(struct key_table *t, struct key_node *node)
{
    struct key_node **at = bucket_of(t, node->key);
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    t->n--;
}
