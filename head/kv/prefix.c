/* Implements the shared part of the block tables: hashes of ids, hits, entries in the prefix
 * caches, and copies of partly filled blocks.
 *
 * The scheduler calls blocks_hash when a request arrives, blocks_find and blocks_take at
 * admission, blocks_advance and blocks_enter for each run. prefix_cache.c does the lookups, and
 * block_pool.c keeps the owners.
 *
 * Invariants: one thread owns the tables. A hash covers all ids before it and the root (salt or
 * tenant, LoRA), so requests with other roots never share. `hit_blocks` of a group is valid
 * until the next find or advance. */
#include <assert.h>
#include <string.h>

#include "head/kv/state.h"

enum { PREFETCH_NEAR = 3, PREFETCH_FAR = 8 }; /* distances of the prefetches, in blocks ahead */

/* ---- hashes ---- */

struct prefix_chain *blocks_chain_of(const struct request *r, uint32_t block_tokens)
{
    struct prefix_chain *c = r->chains;
    while (c && c->block_tokens != block_tokens)
        c = c->next;
    return c;
}

/* Returns the root of r's hashes. Without caching the root is unique to a request and prompt, so
 * only the request's choices share blocks. */
static struct block_hash root_of(const struct blocks *b, const struct request *r)
{
    if (b->caching)
        return prefix_hash_root((struct block_hash){r->salt.lo, r->salt.hi}, r->sampling.lora,
                                r->sampling.lora_id);
    return prefix_hash_root((struct block_hash){r->id.lo, r->id.hi},
                            (struct str){(const char *)&r->sampling.i_prompt, sizeof(uint32_t)}, 0);
}

/* Allocates a chain with capacity for all ids that `r` may have now. */
static struct prefix_chain *chain_alloc(struct request *r, uint32_t block_tokens)
{
    size_t n = (size_t)request_ids_room(r) / block_tokens + 1;
    struct prefix_chain *c = arena_try_alloc(&r->arena, sizeof *c + n * sizeof *c->hashes);
    if (c)
        *c = (struct prefix_chain){.block_tokens = block_tokens, .n_room = (uint32_t)n};
    return c;
}

static struct prefix_chain *chain_new(const struct blocks *b, struct request *r,
                                      uint32_t block_tokens)
{
    struct prefix_chain *c = chain_alloc(r, block_tokens);
    if (!c)
        return NULL;
    c->next = r->chains;
    c->hashes[0] = root_of(b, r);
    return r->chains = c;
}

/* Sets the root of the chain. A changed salt makes all hashes invalid. */
static void chain_begin(const struct blocks *b, struct prefix_chain *c, const struct request *r)
{
    struct block_hash root = root_of(b, r);
    if (c->hashes[0].lo == root.lo && c->hashes[0].hi == root.hi)
        return;
    c->hashes[0] = root;
    c->n = 0;
}

/* Computes hashes up to the first n blocks. */
static void chain_extend(struct prefix_chain *c, const struct request *r, uint32_t n)
{
    for (; c->n < n; c->n++)
        c->hashes[c->n + 1] = prefix_hash_block(
            c->hashes[c->n], r->ids + (size_t)c->n * c->block_tokens, c->block_tokens);
}

bool blocks_hash(const struct blocks *b, struct request *r)
{
    for (uint32_t i = 0; i < b->n_groups; i++) {
        uint32_t block_tokens = b->groups[i].block_tokens;
        struct prefix_chain *c = blocks_chain_of(r, block_tokens);
        if (!c)
            c = chain_new(b, r, block_tokens);
        if (!c)
            return false;
        chain_begin(b, c, r);
        chain_extend(c, r, r->n_ids / block_tokens);
    }
    return true;
}

bool blocks_make_room(struct request *r)
{
    if (!request_make_room(r))
        return false;
    for (struct prefix_chain **at = &r->chains; *at; at = &(*at)->next) {
        const struct prefix_chain *old = *at;
        if (old->n_room > r->ids_cap / old->block_tokens)
            continue;
        struct prefix_chain *c = chain_alloc(r, old->block_tokens);
        if (!c)
            return false;
        c->next = old->next;
        c->n = old->n;
        memcpy(c->hashes, old->hashes, (old->n + 1) * sizeof *c->hashes);
        *at = c;
    }
    return true;
}

/* ---- hits ---- */

struct prefix_key blocks_key_of(const struct prefix_chain *c, const struct request *r, uint32_t i,
                                uint64_t parent_content)
{
    return (struct prefix_key){.hash = c->hashes[i + 1],
                               .parent_hash = c->hashes[i],
                               .parent_content = parent_content,
                               .ids = r->ids + (size_t)i * c->block_tokens,
                               .n = c->block_tokens};
}

/* Prefetches the buckets of the first blocks of a walk from i to n. The walk prefetches the
 * rest. Returns the first block that was not prefetched. */
static uint32_t prefetch_first(const struct blocks_group *g, const struct prefix_chain *c,
                               uint32_t i, uint32_t n)
{
    uint32_t end = n - i < PREFETCH_FAR ? n : i + PREFETCH_FAR;
    for (; i < end; i++)
        prefix_cache_prefetch_bucket(g->cache, c->hashes[i + 1]);
    return end;
}

uint32_t blocks_walk(struct blocks_group *g, const struct request *r, uint32_t i, uint32_t n,
                     uint64_t parent_content)
{
    const struct prefix_chain *c = blocks_chain_of(r, g->block_tokens);
    bool any = parent_content == PREFIX_CONTENT_ANY;
    uint32_t n_asked = i < n ? prefetch_first(g, c, i, n) : n;
    for (; i < n; i++) {
        if (n_asked < n)
            prefix_cache_prefetch_bucket(g->cache, c->hashes[++n_asked]);
        if (i + PREFETCH_NEAR < n)
            prefix_cache_prefetch_hit(g->cache, c->hashes[i + PREFETCH_NEAR + 1]);
        struct prefix_key k = blocks_key_of(c, r, i, parent_content);
        uint32_t block = prefix_cache_find(g->cache, &k);
        if (block == BLOCK_NONE)
            break;
        g->hit_blocks[i] = block;
        block_pool_prefetch(g->pool, block);
        if (!any)
            parent_content = prefix_cache_content(g->cache, block);
    }
    return i;
}

/* Returns the longest hit of at most n_tokens for which the window group has the whole last
 * window. */
static uint32_t longest_window_hit(struct blocks_group *g, const struct request *r,
                                   uint32_t n_tokens, uint32_t align)
{
    const struct prefix_chain *c = blocks_chain_of(r, g->block_tokens);
    uint32_t end = n_tokens - n_tokens % align;
    while (end > 0) {
        uint32_t first = first_needed(g, end), i = end / g->block_tokens;
        for (; i > first; i--) {
            struct prefix_key k = blocks_key_of(c, r, i - 1, PREFIX_CONTENT_ANY);
            uint32_t block = prefix_cache_find(g->cache, &k);
            if (block == BLOCK_NONE)
                break;
            g->hit_blocks[i - 1] = block;
        }
        if (i == first)
            return end;
        end = (i - 1) * g->block_tokens; /* block i - 1 is missing, so the hit ends before it */
        end -= end % align;
    }
    return 0;
}

/* Shortens the hit until every window group has its blocks. Each round makes the hit shorter. */
static uint32_t agree_on_windows(struct blocks *b, const struct request *r, uint32_t n_tokens)
{
    uint32_t before;
    do {
        before = n_tokens;
        for (uint32_t i = 0; i < b->n_groups; i++)
            if (b->groups[i].window)
                n_tokens = longest_window_hit(&b->groups[i], r, n_tokens, b->align);
    } while (n_tokens != before);
    return n_tokens;
}

static uint64_t content_before(const struct blocks_group *g, uint32_t i)
{
    if (g->window)
        return PREFIX_CONTENT_ANY;
    return i == 0 ? PREFIX_CONTENT_ROOT : prefix_cache_content(g->cache, g->hit_blocks[i - 1]);
}

/* When all full blocks are cached, looks for the partly filled block that contains r's last ids. */
static void find_tail(const struct blocks *b, const struct request *r, struct blocks_hit *hit)
{
    uint32_t block_tokens = b->groups[0].block_tokens;
    uint32_t i = hit->n_tokens / block_tokens, n = r->n_ids - 1 - hit->n_tokens;
    if (!b->same_size || n == 0 || n >= block_tokens)
        return;
    const struct prefix_chain *c = blocks_chain_of(r, block_tokens);
    struct prefix_key k = {
        .parent_hash = c->hashes[i], .ids = r->ids + (size_t)i * block_tokens, .n = n};
    k.hash = prefix_hash_block(k.parent_hash, k.ids, n);
    for (uint32_t g = 0; g < b->n_groups; g++) {
        const struct blocks_group *group = &b->groups[g];
        k.parent_content = content_before(group, i);
        hit->tail[g] = prefix_cache_find(group->cache, &k);
        /* the copy needs one more block; a request that needs the whole pool could then never be
         * admitted */
        if (hit->tail[g] == BLOCK_NONE ||
            blocks_at_once(group, r->n_ids) >= block_pool_size(group->pool))
            return;
    }
    hit->n_tail = n;
}

bool blocks_may_share(const struct request *r)
{
    return r->sampling.n_prompt_logprobs < 0 && r->sampling.pooling != POOLING_MEAN;
}

void blocks_find(struct blocks *b, const struct request *r, struct blocks_hit *out)
{
    *out = (struct blocks_hit){0};
    if (!blocks_may_share(r))
        return;
    uint32_t n_tokens = r->n_ids - 1; /* at least one id is run, since its logits are needed */
    n_tokens -= n_tokens % b->align;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        struct blocks_group *g = &b->groups[i];
        if (g->window)
            continue;
        n_tokens =
            g->block_tokens * blocks_walk(g, r, 0, n_tokens / g->block_tokens, PREFIX_CONTENT_ROOT);
        n_tokens -= n_tokens % b->align;
    }
    out->n_tokens = agree_on_windows(b, r, n_tokens);
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct blocks_group *g = &b->groups[i];
        out->n[i] = out->n_tokens / g->block_tokens;
        out->first[i] = first_needed(g, out->n_tokens);
    }
    find_tail(b, r, out);
}

/* Returns the first of n blocks that is not cached, by binary search: when a block is cached,
 * those before it are assumed to be cached too. */
static uint32_t probe_group(const struct blocks_group *g, const struct request *r, uint32_t n)
{
    const struct prefix_chain *c = blocks_chain_of(r, g->block_tokens);
    uint32_t low = 0, high = n;
    /* the search tests block 0 first */
    for (uint32_t i = 0; low < high; i = low + (high - low) / 2) {
        struct prefix_key k = blocks_key_of(c, r, i, PREFIX_CONTENT_ANY);
        if (prefix_cache_find(g->cache, &k) == BLOCK_NONE)
            high = i;
        else
            low = i + 1;
    }
    return low;
}

uint32_t blocks_probe(struct blocks *b, const struct request *r)
{
    if (!blocks_may_share(r))
        return 0;
    uint32_t n_tokens = r->n_ids - 1;
    n_tokens -= n_tokens % b->align;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct blocks_group *g = &b->groups[i];
        if (g->window)
            continue;
        n_tokens = g->block_tokens * probe_group(g, r, n_tokens / g->block_tokens);
        n_tokens -= n_tokens % b->align;
    }
    return agree_on_windows(b, r, n_tokens);
}

uint32_t blocks_common(const struct blocks *b, const struct request *q, const struct request *r)
{
    uint32_t block_tokens = b->groups[0].block_tokens;
    const struct prefix_chain *x = blocks_chain_of(q, block_tokens),
                              *y = blocks_chain_of(r, block_tokens);
    if (!blocks_may_share(q) || !blocks_may_share(r))
        return 0;
    uint32_t low = 0, high = x->n < y->n ? x->n : y->n; /* hashes[0] is the root of both chains */
    if (x->hashes[0].lo != y->hashes[0].lo || x->hashes[0].hi != y->hashes[0].hi)
        return 0;
    while (low < high) {
        uint32_t i = low + (high - low + 1) / 2;
        if (x->hashes[i].lo == y->hashes[i].lo && x->hashes[i].hi == y->hashes[i].hi)
            low = i;
        else
            high = i - 1;
    }
    uint32_t n = low * block_tokens;
    n = n < r->n_ids ? n : r->n_ids - 1;
    return n - n % b->align;
}

/* ---- taking ---- */

/* Adds hit_blocks[t->n .. n) to the table and counts them as entered. */
static void take_blocks(struct blocks_group *g, struct block_table *t, uint32_t n)
{
    for (uint32_t k = t->n; k < n; k++) {
        t->ids[k] = g->hit_blocks[k];
        block_pool_acquire(g->pool, t->ids[k]);
    }
    t->content =
        t->first < n ? prefix_cache_content(g->cache, t->ids[n - 1]) : PREFIX_CONTENT_UNKNOWN;
    t->n = t->n_entered = n;
}

static void copy_tail(struct blocks *b, uint32_t i_group, struct block_table *t, uint32_t from)
{
    struct blocks_group *g = &b->groups[i_group];
    /* this block is acquired first, since it may be free and could be allocated below */
    block_pool_acquire(g->pool, from);
    assert(b->n_copies < b->max_copies);
    blocks_alloc(b, g, &t->ids[t->n], 1);
    b->n_all_copies++;
    b->copies[b->n_copies++] = (struct plan_copy){i_group, from, t->ids[t->n++]};
}

uint32_t blocks_take(struct blocks *b, struct block_table *tables, const struct request *r,
                     const struct blocks_hit *hit)
{
    for (uint32_t i = 0; i < b->n_groups; i++) {
        struct blocks_group *g = &b->groups[i];
        struct block_table *t = &tables[i];
        t->first = t->n = t->n_told = hit->first[i];
        t->first_told = 0;
        t->content = PREFIX_CONTENT_ROOT;
        t->chain = blocks_chain_of(r, g->block_tokens);
        if (hit->n[i] > 0)
            take_blocks(g, t, hit->n[i]);
        t->n_wanted = blocks_for(r->n_ids, g->block_tokens);
        t->n_wanted = t->n_wanted < g->max_held ? t->n_wanted : g->max_held;
    }
    for (uint32_t i = 0; hit->n_tail && i < b->n_groups; i++)
        copy_tail(b, i, &tables[i], hit->tail[i]);
    return hit->n_tokens + hit->n_tail;
}

/* Returns how many cached blocks a window group may add during a run, so that the sequence does
 * not exceed max_held. */
static uint32_t most_taken(const struct blocks_group *g, const struct block_table *t)
{
    uint32_t held = t->n - t->first;
    return g->max_held > held ? g->max_held - held : 0;
}

uint32_t blocks_advance(struct blocks *b, struct block_table *tables, const struct request *r,
                        uint32_t position)
{
    uint32_t end = r->n_ids - 1;
    if (!blocks_may_share(r) || position % b->align != 0)
        return position;
    end -= end % b->align;
    for (uint32_t i = 0; i < b->n_groups && end > position; i++) {
        struct blocks_group *g = &b->groups[i];
        const struct block_table *t = &tables[i];
        uint32_t n = end / g->block_tokens;
        if (t->n != position / g->block_tokens || t->n_entered != t->n)
            return position;
        if (g->window && n - t->n > most_taken(g, t))
            n = t->n + most_taken(g, t);
        end = g->block_tokens *
              blocks_walk(g, r, t->n, n, g->window ? PREFIX_CONTENT_ANY : t->content);
        end -= end % b->align;
    }
    if (end <= position)
        return position;
    for (uint32_t i = 0; i < b->n_groups; i++)
        take_blocks(&b->groups[i], &tables[i], end / b->groups[i].block_tokens);
    return end;
}

/* ---- entering ---- */

uint64_t blocks_enter_block(const struct blocks *b, struct blocks_group *g, uint32_t block,
                            const struct prefix_key *k)
{
    struct prefix_registered r = prefix_cache_register(g->cache, block, k);
    /* the displaced block may be `block` itself, with its former content */
    if (r.displaced != BLOCK_NONE)
        block_pool_keep(g->pool, r.displaced, false);
    block_pool_keep(g->pool, block, b->caching && r.is_new);
    return r.content;
}

uint32_t blocks_enter(struct blocks *b, struct block_table *tables, const struct request *r,
                      uint32_t n_known)
{
    uint32_t next = UINT32_MAX;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        struct blocks_group *g = &b->groups[i];
        struct block_table *t = &tables[i];
        struct prefix_chain *c = t->chain;
        uint32_t n_full = n_known / g->block_tokens;
        chain_extend(c, r, n_full);
        uint32_t n_asked =
            t->n_entered < n_full ? prefetch_first(g, c, t->n_entered, n_full) : n_full;
        for (; t->n_entered < n_full; t->n_entered++) {
            uint32_t k = t->n_entered;
            if (k < t->first) { /* the block has already left the window */
                t->content = PREFIX_CONTENT_UNKNOWN;
                continue;
            }
            if (n_asked < n_full)
                prefix_cache_prefetch_bucket(g->cache, c->hashes[++n_asked]);
            struct prefix_key key = blocks_key_of(c, r, k, t->content);
            t->content = blocks_enter_block(b, g, t->ids[k], &key);
        }
        uint32_t border = (t->n_entered + 1) * g->block_tokens;
        next = border < next ? border : next;
    }
    return next;
}

void blocks_prefetch(const struct blocks *b, const struct block_table *tables)
{
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const char *t = (const char *)&tables[i];
        __builtin_prefetch(t, 1);
        __builtin_prefetch(t + sizeof *tables - 1, 1);
    }
}

/* Computes the hash of the next block to enter, so that its bucket can be prefetched.
 * blocks_enter then reuses the hash. */
void blocks_prefetch_enter(const struct blocks *b, const struct block_table *tables,
                           const struct request *r)
{
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct blocks_group *g = &b->groups[i];
        const struct block_table *t = &tables[i];
        uint32_t k = t->n_entered;
        if ((k + 1) * g->block_tokens > r->n_ids || k < t->first || k >= t->n)
            continue;
        chain_extend(t->chain, r, k + 1);
        prefix_cache_prefetch_bucket(g->cache, t->chain->hashes[k + 1]);
        prefix_cache_prefetch_entry(g->cache, t->ids[k], true);
        block_pool_prefetch(g->pool, t->ids[k]);
    }
}

void blocks_enter_tail(struct blocks *b, struct block_table *tables, const struct request *r)
{
    uint32_t block_tokens = b->groups[0].block_tokens;
    uint32_t i = (r->n_prompt - 1) / block_tokens, n = (r->n_prompt - 1) % block_tokens;
    if (!b->same_size || n == 0)
        return;
    const struct prefix_chain *c = blocks_chain_of(r, block_tokens);
    for (uint32_t g = 0; g < b->n_groups; g++) {
        struct blocks_group *group = &b->groups[g];
        struct block_table *t = &tables[g];
        if (t->n_entered != i || t->first > i || t->n <= i ||
            block_pool_owners(group->pool, t->ids[i]) != 1)
            return;
        struct prefix_key k = {.parent_hash = c->hashes[i],
                               .parent_content = t->content,
                               .ids = r->ids + (size_t)i * block_tokens,
                               .n = n};
        k.hash = prefix_hash_block(k.parent_hash, k.ids, n);
        blocks_enter_block(b, group, t->ids[i], &k);
    }
}
