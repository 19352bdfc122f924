/* Keeps requests in a chained hash table over a fixed array of entries. The chains are indices.
 * Ids are random and come from authenticated gateways, so the ids' own bits are the hash. */
#include "head/request/table.h"

#include <assert.h>

#include "common/base/mem.h"
#include "head/request/request.h"

enum { NONE = UINT32_MAX };

struct entry {
    struct request *request;
    uint32_t next; /* next entry in its bucket or in the free list */
};

struct request_table {
    uint32_t max_requests, n_buckets, count;
    uint32_t n_touched;  /* entries from here on were never used, so their pages stay untouched */
    uint32_t first_free; /* first free entry below n_touched */
    uint32_t *buckets;   /* index + 1, so that zeroed memory is an empty table */
    struct entry *entries;
};

struct request_table *request_table_new(uint32_t max_requests)
{
    struct request_table *t = mem_zalloc(sizeof *t);
    t->max_requests = max_requests;
    t->n_buckets = 16;
    while (t->n_buckets < max_requests && t->n_buckets < 1u << 30)
        t->n_buckets *= 2;
    t->buckets = mem_array(t->n_buckets, sizeof *t->buckets);
    t->entries = mem_array(max_requests, sizeof *t->entries);
    t->first_free = NONE;
    return t;
}

void request_table_free(struct request_table *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < t->n_touched; i++)
        request_free(t->entries[i].request);
    mem_free(t->entries);
    mem_free(t->buckets);
    mem_free(t);
}

static uint32_t bucket_of(const struct request_table *t, struct request_id id, uint32_t i_choice)
{
    uint64_t h = (id.hi ^ id.lo * 0x9E3779B97F4A7C15ull) + i_choice * 0xBF58476D1CE4E5B9ull;
    h = (h ^ h >> 32) * 0x94D049BB133111EBull;
    return (uint32_t)(h >> 33) & (t->n_buckets - 1);
}

static uint32_t find_index(const struct request_table *t, struct request_id id, uint32_t i_choice)
{
    uint32_t i = t->buckets[bucket_of(t, id, i_choice)] - 1;
    for (; i != NONE; i = t->entries[i].next) {
        const struct request *r = t->entries[i].request;
        if (r->id.hi == id.hi && r->id.lo == id.lo && r->i_choice == i_choice)
            return i;
    }
    return NONE;
}

struct request *request_table_find(const struct request_table *t, struct request_id id,
                                   uint32_t i_choice)
{
    uint32_t i = find_index(t, id, i_choice);
    return i == NONE ? NULL : t->entries[i].request;
}

enum status request_table_add(struct request_table *t, struct request *owned_r)
{
    if (find_index(t, owned_r->id, owned_r->i_choice) != NONE)
        return STATUS_EXISTS;
    if (t->count == t->max_requests)
        return STATUS_LIMIT;
    uint32_t i = t->first_free;
    if (i != NONE)
        t->first_free = t->entries[i].next;
    else
        i = t->n_touched++;
    uint32_t *bucket = &t->buckets[bucket_of(t, owned_r->id, owned_r->i_choice)];
    t->entries[i] = (struct entry){owned_r, *bucket - 1};
    *bucket = i + 1;
    t->count++;
    return STATUS_OK;
}

void request_table_remove(struct request_table *t, struct request *r)
{
    uint32_t *bucket = &t->buckets[bucket_of(t, r->id, r->i_choice)];
    uint32_t i = *bucket - 1, before = NONE;
    while (i != NONE && t->entries[i].request != r) {
        before = i;
        i = t->entries[i].next;
    }
    assert(i != NONE);
    if (before == NONE)
        *bucket = t->entries[i].next + 1;
    else
        t->entries[before].next = t->entries[i].next;
    t->entries[i] = (struct entry){NULL, t->first_free};
    t->first_free = i;
    t->count--;
}

uint32_t request_table_count(const struct request_table *t)
{
    return t->count;
}

uint32_t request_table_n_places(const struct request_table *t)
{
    return t->n_touched;
}

struct request *request_table_at(const struct request_table *t, uint32_t i_place)
{
    return i_place < t->n_touched ? t->entries[i_place].request : NULL;
}

struct request *request_table_next(const struct request_table *t, const struct request *after)
{
    uint32_t i = 0;
    if (after) {
        i = find_index(t, after->id, after->i_choice);
        assert(i != NONE); /* callers find the next request before this one is removed */
        i++;
    }
    for (; i < t->n_touched; i++)
        if (t->entries[i].request)
            return t->entries[i].request;
    return NULL;
}
