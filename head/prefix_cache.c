#include "head/prefix_cache.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/mem.h"
#include "head/block_pool.h"

struct entry {
    struct block_hash hash, parent_hash;
    uint64_t content, parent_content; /* content 0: not registered */
    uint32_t next;                    /* in its bucket */
};

struct prefix_cache {
    uint32_t n_blocks, block_tokens, n_buckets, count;
    uint64_t last_content;
    uint32_t *buckets; /* block id + 1, so that zeroed memory is an empty table */
    struct entry *entries;
    uint32_t *ids; /* [n_blocks, block_tokens] */
};

static struct block_hash from_xxh(XXH128_hash_t h)
{
    return (struct block_hash){h.low64, h.high64};
}

static bool hash_eq(struct block_hash a, struct block_hash b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

struct block_hash prefix_hash_root(uint64_t salt, struct str lora)
{
    return from_xxh(XXH3_128bits_withSeed(lora.ptr, lora.len, salt));
}

struct block_hash prefix_hash_block(struct block_hash parent, const uint32_t *ids, uint32_t n)
{
    struct {
        struct block_hash parent;
        uint32_t ids[PREFIX_MAX_BLOCK_TOKENS];
    } in;
    assert(n <= PREFIX_MAX_BLOCK_TOKENS);
    in.parent = parent;
    memcpy(in.ids, ids, (size_t)n * sizeof *ids);
    return from_xxh(XXH3_128bits(&in, sizeof in.parent + (size_t)n * sizeof *ids));
}

struct prefix_cache *prefix_cache_new(uint32_t n_blocks, uint32_t block_tokens)
{
    assert(block_tokens <= PREFIX_MAX_BLOCK_TOKENS);
    struct prefix_cache *c = mem_zalloc(sizeof *c);
    c->n_blocks = n_blocks;
    c->block_tokens = block_tokens;
    c->n_buckets = 16;
    while (c->n_buckets < n_blocks && c->n_buckets < 1u << 31)
        c->n_buckets *= 2;
    c->buckets = mem_try_array(c->n_buckets, sizeof *c->buckets);
    c->entries = mem_try_array(n_blocks, sizeof *c->entries);
    c->ids = mem_try_array((size_t)n_blocks * block_tokens, sizeof *c->ids);
    if (!c->buckets || !c->entries || !c->ids) {
        prefix_cache_free(c);
        return NULL;
    }
    c->last_content = PREFIX_CONTENT_ROOT;
    return c;
}

void prefix_cache_free(struct prefix_cache *c)
{
    if (!c)
        return;
    mem_free(c->buckets);
    mem_free(c->entries);
    mem_free(c->ids);
    mem_free(c);
}

void prefix_cache_reset(struct prefix_cache *c)
{
    for (uint32_t b = 0; b < c->n_blocks; b++)
        prefix_cache_forget(c, b);
}

static uint32_t *bucket_of(const struct prefix_cache *c, struct block_hash h)
{
    return &c->buckets[h.lo & (c->n_buckets - 1)];
}

static const uint32_t *ids_of(const struct prefix_cache *c, uint32_t block)
{
    return c->ids + (size_t)block * c->block_tokens;
}

static uint32_t find_hash(const struct prefix_cache *c, struct block_hash h)
{
    uint32_t b = *bucket_of(c, h) - 1;
    while (b != BLOCK_NONE && !hash_eq(c->entries[b].hash, h))
        b = c->entries[b].next;
    return b;
}

static bool confirmed(const struct prefix_cache *c, uint32_t block, const struct prefix_key *k)
{
    const struct entry *e = &c->entries[block];
    return hash_eq(e->parent_hash, k->parent_hash) &&
           (k->parent_content == PREFIX_CONTENT_ANY || e->parent_content == k->parent_content) &&
           memcmp(ids_of(c, block), k->ids, c->block_tokens * sizeof *k->ids) == 0;
}

uint32_t prefix_cache_find(const struct prefix_cache *c, const struct prefix_key *k)
{
    uint32_t b = find_hash(c, k->hash);
    return b != BLOCK_NONE && confirmed(c, b, k) ? b : BLOCK_NONE;
}

uint64_t prefix_cache_content(const struct prefix_cache *c, uint32_t block)
{
    assert(block < c->n_blocks);
    return c->entries[block].content;
}

bool prefix_cache_holds(const struct prefix_cache *c, uint32_t block)
{
    return prefix_cache_content(c, block) != 0;
}

uint64_t prefix_cache_register(struct prefix_cache *c, uint32_t block, const struct prefix_key *k)
{
    assert(block < c->n_blocks && !c->entries[block].content);
    uint32_t same = find_hash(c, k->hash);
    if (same != BLOCK_NONE) {
        if (confirmed(c, same, k))
            return c->entries[same].content;
        prefix_cache_forget(c, same); /* its parent is gone, or the hash collides: the newer wins */
    }
    uint32_t *bucket = bucket_of(c, k->hash);
    c->entries[block] =
        (struct entry){k->hash, k->parent_hash, ++c->last_content, k->parent_content, *bucket - 1};
    *bucket = block + 1;
    memcpy(c->ids + (size_t)block * c->block_tokens, k->ids, c->block_tokens * sizeof *k->ids);
    c->count++;
    return c->last_content;
}

void prefix_cache_forget(struct prefix_cache *c, uint32_t block)
{
    assert(block < c->n_blocks);
    struct entry *e = &c->entries[block];
    if (!e->content)
        return;
    uint32_t *bucket = bucket_of(c, e->hash);
    if (*bucket == block + 1) {
        *bucket = e->next + 1;
    } else {
        uint32_t b = *bucket - 1;
        while (c->entries[b].next != block)
            b = c->entries[b].next;
        c->entries[b].next = e->next;
    }
    *e = (struct entry){0};
    c->count--;
}

bool prefix_cache_check(const struct prefix_cache *c, struct error *err)
{
    uint32_t n_chained = 0, n_registered = 0;
    for (uint32_t i = 0; i < c->n_buckets; i++)
        for (uint32_t b = c->buckets[i] - 1; b != BLOCK_NONE; b = c->entries[b].next)
            if (!c->entries[b].content || ++n_chained > c->count ||
                find_hash(c, c->entries[b].hash) != b) {
                error_set(err, STATUS_INTERNAL, "prefix cache: block %u is wrong in bucket %u", b,
                          i);
                return false;
            }
    for (uint32_t b = 0; b < c->n_blocks; b++)
        n_registered += c->entries[b].content != 0;
    if (n_chained != c->count || n_registered != c->count) {
        error_set(err, STATUS_INTERNAL, "prefix cache: %u chained, %u registered, counts %u",
                  n_chained, n_registered, c->count);
        return false;
    }
    return true;
}
