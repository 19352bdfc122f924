/* Keeps the prefix cache of one KV group, a hash table from block hashes to blocks.
 * prefix_cache.h explains the design.
 *
 * prefix.c and move.c call `prefix_cache_find` for hits and `prefix_cache_register` for blocks
 * that a plan will fill. tables.c calls `prefix_cache_forget` when a block is allocated again.
 *
 * Invariants: one thread uses the cache; a call is O(1) and allocates nothing. A block is
 * registered when `places[block]` is not 0, and its entry is valid only then. A slot is live only
 * if it agrees with `places` of its block. Other slots are stale and may be overwritten. */
#include "head/kv/prefix_cache.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/mem.h"
#include "head/kv/block_pool.h"

enum { LINE_BYTES = 64, SLOTS = 8, TAG_BITS = 8 };

/* Holds the content of a registered block. An entry has two cache lines for blocks of 16 tokens. */
struct entry {
    struct block_hash hash, parent_hash;
    uint64_t content, parent_content;
    uint32_t n;     /* tokens in `ids` */
    uint32_t ids[]; /* array of block_tokens ids; the first n are valid */
};

/* A slot points to a block that has, or had, a hash with this tag in this bucket. Eight tags are
 * compared at once as the bytes of a word. Two buckets share a cache line. */
struct bucket {
    uint64_t tags; /* tag of slot i in bits 8i to 8i+7: 1 to 255; 0 = free */
    uint16_t blocks_low[SLOTS];
    uint8_t blocks_high[SLOTS];
};
_Static_assert(sizeof(struct bucket) == 32, "half a cache line");
#define EACH_SLOT 0x0101010101010101ull

struct prefix_cache {
    uint32_t n_blocks, block_tokens, n_buckets;
    uint64_t last_content;
    struct bucket *buckets;
    uint32_t *places; /* array of n_blocks: bucket << TAG_BITS | tag; 0 = not registered */
    size_t stride;    /* bytes of an entry */
    char *entries;    /* array of n_blocks; an entry is valid only while places[block] is not 0 */
    struct mem_table bucket_table, place_table, entry_table;
};

/* ---- hashes ---- */

static struct block_hash from_xxh(XXH128_hash_t h)
{
    return (struct block_hash){h.low64, h.high64};
}

static bool hash_eq(struct block_hash a, struct block_hash b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

struct block_hash prefix_hash_root(struct block_hash salt, struct str lora, uint64_t lora_id)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(lora.ptr, lora.len, lora_id);
    uint64_t in[4] = {salt.lo, salt.hi, h.low64, h.high64};
    return from_xxh(XXH3_128bits(in, sizeof in));
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

/* ---- create and free ---- */

struct prefix_cache *prefix_cache_new(uint32_t n_blocks, uint32_t block_tokens)
{
    assert(block_tokens <= PREFIX_MAX_BLOCK_TOKENS && n_blocks <= PREFIX_MAX_BLOCKS);
    struct prefix_cache *c = mem_zalloc(sizeof *c);
    c->n_blocks = n_blocks;
    c->block_tokens = block_tokens;
    c->n_buckets = 4;
    while (c->n_buckets < n_blocks / 2) /* a bucket has at most two live slots on average */
        c->n_buckets *= 2;
    c->stride = sizeof(struct entry) + block_tokens * sizeof(uint32_t);
    c->stride = (c->stride + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    if (!mem_table_open(&c->bucket_table, c->n_buckets, sizeof *c->buckets) ||
        !mem_table_open(&c->place_table, n_blocks, sizeof *c->places) ||
        !mem_table_open(&c->entry_table, n_blocks, c->stride)) {
        prefix_cache_free(c);
        return NULL;
    }
    c->buckets = c->bucket_table.at;
    c->places = c->place_table.at;
    c->entries = c->entry_table.at;
    c->last_content = PREFIX_CONTENT_ROOT;
    return c;
}

void prefix_cache_free(struct prefix_cache *c)
{
    if (!c)
        return;
    mem_table_close(&c->bucket_table);
    mem_table_close(&c->place_table);
    mem_table_close(&c->entry_table);
    mem_free(c);
}

void prefix_cache_reset(struct prefix_cache *c)
{
    memset(c->places, 0, c->n_blocks * sizeof *c->places);
}

/* ---- lookup ---- */

static struct entry *entry_of(const struct prefix_cache *c, uint32_t block)
{
    return (struct entry *)(c->entries + block * c->stride);
}

/* Returns bucket and tag of a hash. */
static uint32_t place_of(const struct prefix_cache *c, struct block_hash h)
{
    uint32_t bucket = (uint32_t)h.lo & (c->n_buckets - 1), tag = 1 + (uint32_t)(h.hi >> 32) % 255;
    return bucket << TAG_BITS | tag;
}

static struct bucket *bucket_of(const struct prefix_cache *c, uint32_t place)
{
    return &c->buckets[place >> TAG_BITS];
}

static uint32_t tag_of(uint32_t place)
{
    return place & ((1u << TAG_BITS) - 1);
}

static uint32_t block_at(const struct bucket *b, uint32_t i)
{
    return b->blocks_low[i] | (uint32_t)b->blocks_high[i] << 16;
}

static uint32_t tag_at(const struct bucket *b, uint32_t i)
{
    return (uint32_t)(b->tags >> TAG_BITS * i) & 0xFF;
}

static void set_slot(struct bucket *b, uint32_t i, uint32_t tag, uint32_t block)
{
    b->tags = (b->tags & ~(0xFFull << TAG_BITS * i)) | (uint64_t)tag << TAG_BITS * i;
    b->blocks_low[i] = (uint16_t)block;
    b->blocks_high[i] = (uint8_t)(block >> 16);
}

/* Returns a mask of slots that may have this tag: bit 8i+7 for slot i. Tag 0 finds free slots.
 * The lowest bit that is set is always right. Higher bits may be false (zero bytes of a word:
 * Warren, Hacker's Delight, 6-1). */
static uint64_t slots_with(const struct bucket *b, uint32_t tag)
{
    uint64_t x = b->tags ^ tag * EACH_SLOT;
    return (x - EACH_SLOT) & ~x & EACH_SLOT << (TAG_BITS - 1);
}

static uint32_t lowest_slot(uint64_t mask)
{
    return (uint32_t)__builtin_ctzll(mask) / TAG_BITS;
}

/* Returns the slot of the block that is registered with this hash, or SLOTS when there is none. */
static uint32_t find_slot(const struct prefix_cache *c, uint32_t place, struct block_hash h)
{
    const struct bucket *b = bucket_of(c, place);
    for (uint64_t mask = slots_with(b, tag_of(place)); mask; mask &= mask - 1) {
        uint32_t i = lowest_slot(mask), block = block_at(b, i);
        if (tag_at(b, i) == tag_of(place) && c->places[block] == place &&
            hash_eq(entry_of(c, block)->hash, h))
            return i;
    }
    return SLOTS;
}

static bool confirmed(const struct entry *e, const struct prefix_key *k)
{
    return hash_eq(e->parent_hash, k->parent_hash) && e->n == k->n &&
           (k->parent_content == PREFIX_CONTENT_ANY || e->parent_content == k->parent_content) &&
           memcmp(e->ids, k->ids, k->n * sizeof *k->ids) == 0;
}

uint32_t prefix_cache_find(const struct prefix_cache *c, const struct prefix_key *k)
{
    uint32_t place = place_of(c, k->hash), i = find_slot(c, place, k->hash);
    if (i == SLOTS)
        return BLOCK_NONE;
    uint32_t block = block_at(bucket_of(c, place), i);
    return confirmed(entry_of(c, block), k) ? block : BLOCK_NONE;
}

void prefix_cache_prefetch_entry(const struct prefix_cache *c, uint32_t block, bool registered)
{
    const char *e = (const char *)entry_of(c, block);
    __builtin_prefetch(&c->places[block], 1);
    if (!registered)
        return;
    __builtin_prefetch(e, 1);
    __builtin_prefetch(e + LINE_BYTES, 1);
}

void prefix_cache_prefetch_bucket(const struct prefix_cache *c, struct block_hash hash)
{
    __builtin_prefetch(bucket_of(c, place_of(c, hash)));
}

void prefix_cache_prefetch_hit(const struct prefix_cache *c, struct block_hash hash)
{
    uint32_t place = place_of(c, hash);
    uint64_t mask = slots_with(bucket_of(c, place), tag_of(place));
    if (!mask)
        return;
    uint32_t block = block_at(bucket_of(c, place), lowest_slot(mask));
    prefix_cache_prefetch_entry(c, block, true);
}

bool prefix_cache_holds(const struct prefix_cache *c, uint32_t block)
{
    assert(block < c->n_blocks);
    return c->places[block] != 0;
}

uint64_t prefix_cache_content(const struct prefix_cache *c, uint32_t block)
{
    return prefix_cache_holds(c, block) ? entry_of(c, block)->content : 0;
}

/* ---- changes ---- */

/* Returns a slot that may be overwritten, or SLOTS when there is none. In a full bucket it first
 * frees all stale slots, so that one check of eight blocks serves several registrations. */
static uint32_t free_slot(const struct prefix_cache *c, uint32_t place)
{
    struct bucket *b = bucket_of(c, place);
    uint32_t bucket_bits = place - tag_of(place);
    if (slots_with(b, 0) == 0)
        for (uint32_t i = 0; i < SLOTS; i++)
            if (c->places[block_at(b, i)] != bucket_bits + tag_at(b, i))
                set_slot(b, i, 0, 0);
    uint64_t mask = slots_with(b, 0);
    return mask ? lowest_slot(mask) : SLOTS;
}

static void write_entry(struct prefix_cache *c, uint32_t block, const struct prefix_key *k)
{
    struct entry *e = entry_of(c, block);
    e->hash = k->hash;
    e->parent_hash = k->parent_hash;
    e->content = ++c->last_content;
    e->parent_content = k->parent_content;
    e->n = k->n;
    memcpy(e->ids, k->ids, k->n * sizeof *k->ids);
}

struct prefix_registered prefix_cache_register(struct prefix_cache *c, uint32_t block,
                                               const struct prefix_key *k)
{
    assert(block < c->n_blocks && k->n >= 1 && k->n <= c->block_tokens);
    struct prefix_registered out = {.displaced = BLOCK_NONE};
    uint32_t place = place_of(c, k->hash), i = find_slot(c, place, k->hash);
    struct bucket *b = bucket_of(c, place);
    if (i < SLOTS && block_at(b, i) != block) {
        const struct entry *same = entry_of(c, block_at(b, i));
        if (confirmed(same, k)) {
            prefix_cache_forget(c, block);
            out.content = same->content;
            return out;
        }
        /* the slot's parent is gone, or the hashes collide; the newer block replaces the older
         * one */
        out.displaced = block_at(b, i);
    }
    if (i == SLOTS)
        i = free_slot(c, place);
    if (i == SLOTS) { /* all eight slots are live */
        i = tag_of(place) % SLOTS;
        out.displaced = block_at(b, i);
    }
    if (out.displaced != BLOCK_NONE)
        prefix_cache_forget(c, out.displaced);
    write_entry(c, block, k);
    c->places[block] = place;
    set_slot(b, i, tag_of(place), block);
    out.content = c->last_content;
    out.is_new = true;
    return out;
}

void prefix_cache_forget(struct prefix_cache *c, uint32_t block)
{
    assert(block < c->n_blocks);
    c->places[block] = 0;
}

bool prefix_cache_check(const struct prefix_cache *c, struct error *err)
{
    for (uint32_t k = 0; k < c->n_blocks; k++) {
        uint32_t place = c->places[k];
        if (!place)
            continue;
        const struct entry *e = entry_of(c, k);
        uint32_t i = find_slot(c, place, e->hash);
        if (place == place_of(c, e->hash) && i < SLOTS && block_at(bucket_of(c, place), i) == k &&
            e->n >= 1 && e->n <= c->block_tokens)
            continue;
        error_set(
            err, STATUS_INTERNAL,
            "the prefix cache is wrong: block %u cannot be found by its hash. Report this bug", k);
        return false;
    }
    return true;
}
