#include "head/prefix_cache.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/mem.h"
#include "head/block_pool.h"

enum { LINE_BYTES = 64, SLOTS = 8 };

/* Two cache lines for blocks of 16 tokens. */
struct entry {
    struct block_hash hash, parent_hash;
    uint64_t content, parent_content; /* content 0: not registered */
    uint32_t n;                       /* tokens in ids */
    uint32_t ids[];                   /* [block_tokens] */
};

/* A slot points to a block that has, or had, a hash with this tag and this bucket. Tags are
 * compared eight at once, as the bytes of a word. */
struct bucket {
    uint64_t tags; /* slot i: bits 8 i and on, 1 .. 255; 0: free */
    uint32_t blocks[SLOTS];
};
enum { TAG_BITS = 8 };
#define EACH_SLOT 0x0101010101010101ull

struct prefix_cache {
    uint32_t n_blocks, block_tokens, n_buckets;
    uint64_t last_content;
    struct bucket *buckets;
    size_t stride; /* of an entry, bytes */
    char *entries; /* [n_blocks] */
    struct mem_table bucket_table, entry_table;
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

struct block_hash prefix_hash_root(struct block_hash salt, struct str lora)
{
    XXH128_hash_t h = XXH3_128bits(lora.ptr, lora.len);
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

/* ---- life ---- */

struct prefix_cache *prefix_cache_new(uint32_t n_blocks, uint32_t block_tokens)
{
    assert(block_tokens <= PREFIX_MAX_BLOCK_TOKENS);
    struct prefix_cache *c = mem_zalloc(sizeof *c);
    c->n_blocks = n_blocks;
    c->block_tokens = block_tokens;
    c->n_buckets = 4;
    while (c->n_buckets < n_blocks / 2) /* two live ones in each at most, on average */
        c->n_buckets *= 2;
    c->stride = sizeof(struct entry) + block_tokens * sizeof(uint32_t);
    c->stride = (c->stride + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    if (!mem_table_open(&c->bucket_table, c->n_buckets, sizeof *c->buckets) ||
        !mem_table_open(&c->entry_table, n_blocks, c->stride)) {
        prefix_cache_free(c);
        return NULL;
    }
    c->buckets = c->bucket_table.at;
    c->entries = c->entry_table.at;
    c->last_content = PREFIX_CONTENT_ROOT;
    return c;
}

void prefix_cache_free(struct prefix_cache *c)
{
    if (!c)
        return;
    mem_table_close(&c->bucket_table);
    mem_table_close(&c->entry_table);
    mem_free(c);
}

void prefix_cache_reset(struct prefix_cache *c)
{
    /* pages that nobody has written stay unmapped */
    for (uint32_t b = 0; b < c->n_blocks && c->last_content > PREFIX_CONTENT_ROOT; b++)
        if (prefix_cache_holds(c, b))
            prefix_cache_forget(c, b);
}

/* ---- lookup ---- */

static struct entry *entry_of(const struct prefix_cache *c, uint32_t block)
{
    return (struct entry *)(c->entries + block * c->stride);
}

static struct bucket *bucket_of(const struct prefix_cache *c, struct block_hash h)
{
    return &c->buckets[h.lo & (c->n_buckets - 1)];
}

static uint64_t tag_of(struct block_hash h)
{
    return 1 + (h.hi >> 32) % 255;
}

/* Bit 8 i + 7 for each zero byte i; above a zero byte there may be one bit too many (Warren,
 * Hacker's Delight, 6-1): who asks looks at the lowest, or checks. */
static uint64_t zero_bytes(uint64_t x)
{
    return (x - EACH_SLOT) & ~x & EACH_SLOT << (TAG_BITS - 1);
}

/* Slots that may hold h. */
static uint64_t candidates(const struct bucket *b, struct block_hash h)
{
    return zero_bytes(b->tags ^ tag_of(h) * EACH_SLOT);
}

static uint32_t lowest_slot(uint64_t mask)
{
    return (uint32_t)__builtin_ctzll(mask) / TAG_BITS;
}

static uint64_t tag_at(const struct bucket *b, uint32_t i)
{
    return b->tags >> TAG_BITS * i & 0xFF;
}

static void set_slot(struct bucket *b, uint32_t i, uint64_t tag, uint32_t block)
{
    b->tags = (b->tags & ~(0xFFull << TAG_BITS * i)) | tag << TAG_BITS * i;
    b->blocks[i] = block;
}

static bool is_alive(const struct entry *e, struct block_hash h)
{
    return e->content != 0 && hash_eq(e->hash, h);
}

/* The slot of a live entry with this hash; SLOTS: none. */
static uint32_t find_slot(const struct prefix_cache *c, const struct bucket *b, struct block_hash h)
{
    for (uint64_t mask = candidates(b, h); mask; mask &= mask - 1) {
        uint32_t i = lowest_slot(mask);
        if (tag_at(b, i) == tag_of(h) && is_alive(entry_of(c, b->blocks[i]), h))
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
    const struct bucket *b = bucket_of(c, k->hash);
    uint32_t i = find_slot(c, b, k->hash);
    return i < SLOTS && confirmed(entry_of(c, b->blocks[i]), k) ? b->blocks[i] : BLOCK_NONE;
}

void prefix_cache_prefetch_entry(const struct prefix_cache *c, uint32_t block)
{
    const char *e = (const char *)entry_of(c, block);
    __builtin_prefetch(e, 1);
    __builtin_prefetch(e + LINE_BYTES, 1);
}

void prefix_cache_prefetch_bucket(const struct prefix_cache *c, struct block_hash hash)
{
    __builtin_prefetch(bucket_of(c, hash));
}

void prefix_cache_prefetch_hit(const struct prefix_cache *c, struct block_hash hash)
{
    const struct bucket *b = bucket_of(c, hash);
    uint64_t mask = candidates(b, hash);
    if (mask)
        prefix_cache_prefetch_entry(c, b->blocks[lowest_slot(mask)]);
}

uint64_t prefix_cache_content(const struct prefix_cache *c, uint32_t block)
{
    assert(block < c->n_blocks);
    return entry_of(c, block)->content;
}

bool prefix_cache_holds(const struct prefix_cache *c, uint32_t block)
{
    return prefix_cache_content(c, block) != 0;
}

/* ---- change ---- */

/* Does slot i still say what its block holds? */
static bool is_stale(const struct prefix_cache *c, const struct bucket *b, uint32_t i)
{
    const struct entry *e = entry_of(c, b->blocks[i]);
    return e->content == 0 || tag_of(e->hash) != tag_at(b, i) || bucket_of(c, e->hash) != b;
}

/* A slot that may be overwritten. All stale ones are emptied when there is none: their entries are
 * cold, and one such look at all of them pays for several registrations. */
static uint32_t free_slot(const struct prefix_cache *c, struct bucket *b)
{
    uint64_t mask = zero_bytes(b->tags);
    if (mask)
        return lowest_slot(mask);
    for (uint32_t i = 0; i < SLOTS; i++)
        __builtin_prefetch(entry_of(c, b->blocks[i]));
    uint32_t at = SLOTS;
    for (uint32_t i = 0; i < SLOTS; i++)
        if (is_stale(c, b, i)) {
            set_slot(b, i, 0, 0);
            at = i;
        }
    return at;
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
    struct bucket *b = bucket_of(c, k->hash);
    uint32_t i = find_slot(c, b, k->hash);
    if (i < SLOTS && b->blocks[i] != block) {
        struct entry *same = entry_of(c, b->blocks[i]);
        if (confirmed(same, k)) {
            prefix_cache_forget(c, block);
            out.content = same->content;
            return out;
        }
        same->content = 0; /* its parent is gone, or the hash collides: the newer wins */
        out.displaced = b->blocks[i];
    }
    if (i == SLOTS)
        i = free_slot(c, b);
    if (i == SLOTS) { /* eight live ones */
        i = (uint32_t)tag_of(k->hash) % SLOTS;
        out.displaced = b->blocks[i];
        prefix_cache_forget(c, out.displaced);
    }
    write_entry(c, block, k);
    set_slot(b, i, tag_of(k->hash), block);
    out.content = c->last_content;
    out.is_new = true;
    return out;
}

void prefix_cache_forget(struct prefix_cache *c, uint32_t block)
{
    assert(block < c->n_blocks);
    entry_of(c, block)->content = 0;
}

bool prefix_cache_check(const struct prefix_cache *c, struct error *err)
{
    for (uint32_t k = 0; k < c->n_blocks; k++) {
        const struct entry *e = entry_of(c, k);
        if (!e->content)
            continue;
        const struct bucket *b = bucket_of(c, e->hash);
        uint32_t i = find_slot(c, b, e->hash);
        if (i < SLOTS && b->blocks[i] == k && e->n >= 1 && e->n <= c->block_tokens)
            continue;
        error_set(err, STATUS_INTERNAL, "prefix cache: block %u cannot be found by its hash", k);
        return false;
    }
    return true;
}
