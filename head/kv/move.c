/* Copies blocks between the tables of two replicas. A hold or an import owns blocks like a
 * sequence does, so the blocks stay allocated whatever happens to the sequences. An import
 * enters the prefix cache only when it is complete. */
#include <assert.h>

#include "head/kv/state.h"

uint32_t blocks_align(const struct blocks *b, uint32_t n_tokens)
{
    return n_tokens - n_tokens % b->align;
}

/* These two functions return the first block, and the end, of the blocks of a group that a hit
 * of n_tokens uses. */
static uint32_t first_part(const struct blocks_group *g, uint32_t n_tokens)
{
    return first_needed(g, n_tokens);
}

static uint32_t end_part(const struct blocks_group *g, uint32_t n_tokens)
{
    return n_tokens / g->block_tokens;
}

uint32_t blocks_n_parts(const struct blocks *b, uint32_t n_tokens)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_groups; i++)
        n += end_part(&b->groups[i], n_tokens) - first_part(&b->groups[i], n_tokens);
    return n;
}

bool blocks_hold(struct blocks *b, const struct block_table *tables, uint32_t n_tokens,
                 struct blocks_part *parts)
{
    assert(n_tokens % b->align == 0);
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct blocks_group *g = &b->groups[i];
        if (first_part(g, n_tokens) < tables[i].first || end_part(g, n_tokens) > tables[i].n)
            return false;
    }
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct blocks_group *g = &b->groups[i];
        for (uint32_t k = first_part(g, n_tokens); k < end_part(g, n_tokens); k++) {
            *parts = (struct blocks_part){.i_group = i, .index = k, .id = tables[i].ids[k]};
            block_pool_acquire(g->pool, parts++->id);
        }
    }
    return true;
}

/* Looks up the group's blocks in the cache and writes them to hit_blocks; BLOCK_NONE = not
 * cached. */
static void look_up(struct blocks_group *g, const struct request *r, uint32_t n_tokens)
{
    uint32_t i = first_part(g, n_tokens), end = end_part(g, n_tokens);
    if (!g->window)
        i = blocks_walk(g, r, 0, end, PREFIX_CONTENT_ROOT);
    for (; i < end; i++) {
        struct prefix_key k =
            blocks_key_of(blocks_chain_of(r, g->block_tokens), r, i, PREFIX_CONTENT_ANY);
        g->hit_blocks[i] = g->window ? prefix_cache_find(g->cache, &k) : BLOCK_NONE;
    }
}

static bool has_room(const struct blocks_group *g, uint32_t n_tokens, uint32_t n_running)
{
    uint64_t need = blocks_spare_for_others(g, n_running) + g->claimed;
    for (uint32_t k = first_part(g, n_tokens); k < end_part(g, n_tokens); k++)
        need += g->hit_blocks[k] == BLOCK_NONE || block_pool_owners(g->pool, g->hit_blocks[k]) == 0;
    return need <= block_pool_n_free(g->pool);
}

/* Acquires the cached blocks first. Otherwise a cached block that is free could be allocated for
 * another part. */
static void take_parts(struct blocks *b, uint32_t i_group, uint32_t n_tokens,
                       struct blocks_part *parts)
{
    struct blocks_group *g = &b->groups[i_group];
    uint32_t first = first_part(g, n_tokens), n = end_part(g, n_tokens) - first;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = g->hit_blocks[first + i];
        parts[i] = (struct blocks_part){i_group, first + i, id, .was_there = id != BLOCK_NONE};
        if (parts[i].was_there)
            block_pool_acquire(g->pool, id);
    }
    for (uint32_t i = 0; i < n; i++)
        if (!parts[i].was_there)
            blocks_alloc(b, g, &parts[i].id, 1);
}

bool blocks_import(struct blocks *b, const struct request *r, uint32_t n_tokens, uint32_t n_running,
                   struct blocks_part *parts)
{
    assert(n_tokens % b->align == 0 && n_tokens <= r->n_ids);
    for (uint32_t i = 0; i < b->n_groups; i++) {
        look_up(&b->groups[i], r, n_tokens);
        if (!has_room(&b->groups[i], n_tokens, n_running))
            return false;
    }
    for (uint32_t i = 0; i < b->n_groups; i++) {
        take_parts(b, i, n_tokens, parts);
        parts += end_part(&b->groups[i], n_tokens) - first_part(&b->groups[i], n_tokens);
    }
    return true;
}

void blocks_enter_parts(struct blocks *b, const struct request *r, const struct blocks_part *parts,
                        uint32_t n)
{
    uint64_t content = PREFIX_CONTENT_UNKNOWN;
    for (uint32_t i = 0; i < n; i++) {
        const struct blocks_part *p = &parts[i];
        struct blocks_group *g = &b->groups[p->i_group];
        if (p->index == 0)
            content = PREFIX_CONTENT_ROOT;
        else if (i == 0 || parts[i - 1].i_group != p->i_group)
            content = PREFIX_CONTENT_UNKNOWN; /* the first block in a window has no known parent */
        struct prefix_key k =
            blocks_key_of(blocks_chain_of(r, g->block_tokens), r, p->index, content);
        if (p->was_there && prefix_cache_holds(g->cache, p->id))
            content = prefix_cache_content(g->cache, p->id);
        else
            content = blocks_enter_block(b, g, p->id, &k);
    }
}

void blocks_let_go(struct blocks *b, const struct blocks_part *parts, uint32_t n)
{
    for (uint32_t i = n; i-- > 0;) /* earlier blocks are more useful, so they are released last */
        block_pool_release(b->groups[parts[i].i_group].pool, &parts[i].id, 1, b->step_sent);
}
