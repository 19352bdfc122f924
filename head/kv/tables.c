/* Manages the block tables of sequences: capacity, growth, release, and the steps.
 *
 * scheduler/ checks for free blocks (`blocks_fit_admit`, `blocks_fit`), grows tables with
 * `blocks_extend` while it makes a plan, and calls `blocks_release` at the end. Blocks come from
 * block_pool.c; prefix.c has the shared part.
 *
 * Invariants: one thread uses the tables; nothing is allocated after `blocks_new`. `promised` of
 * a group is the sum of its tables' `n_promised`. A table's `digest` covers exactly the blocks
 * that the ranks have received. */
#include "head/kv/blocks.h"

#include <assert.h>

#include "common/base/mem.h"
#include "head/kv/state.h"
#include "proto/plan_digest.h"

enum {
    BLOCK_TOKENS_STEP = 16,
    MAX_BLOCKS = PREFIX_MAX_BLOCKS, /* most blocks that a worker may report */
    WATERMARK_SHARE = 100,          /* new sequences leave one block in a hundred free */
};

/* ---- create and free ---- */

enum status blocks_check_group(const struct kv_group *k, uint32_t i, struct error *err)
{
    if (k->block_tokens == 0 || k->block_tokens % BLOCK_TOKENS_STEP ||
        k->block_tokens > PREFIX_MAX_BLOCK_TOKENS)
        return error_set(err, STATUS_INVALID,
                         "KV group %u is invalid: block_tokens is %u, but must be a multiple of %d "
                         "and at most %u",
                         i, k->block_tokens, BLOCK_TOKENS_STEP, PREFIX_MAX_BLOCK_TOKENS);
    if (k->n_blocks == 0 || k->n_blocks > MAX_BLOCKS)
        return error_set(err, STATUS_INVALID,
                         "KV group %u is invalid: n_blocks is %u, but must be from 1 to %d", i,
                         k->n_blocks, MAX_BLOCKS);
    if (k->kind == KV_WINDOW && k->window_tokens == 0)
        return error_set(err, STATUS_INVALID,
                         "KV group %u is invalid: its window has 0 tokens, but needs at least 1",
                         i);
    return STATUS_OK;
}

static uint64_t common_multiple(uint64_t a, uint64_t b)
{
    uint64_t x = a, y = b;
    while (y) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

static bool open_group(struct blocks_group *g, const struct kv_group *k,
                       const struct blocks_config *c)
{
    g->block_tokens = k->block_tokens;
    g->window = k->kind == KV_WINDOW ? k->window_tokens : 0;
    g->max_held = g->window ? blocks_for(c->max_chunk, g->block_tokens) +
                                  blocks_for(g->window, g->block_tokens) + 1
                            : UINT32_MAX;
    g->pool = block_pool_new(k->n_blocks);
    g->cache = prefix_cache_new(k->n_blocks, k->block_tokens);
    g->hit_blocks =
        mem_try_array(blocks_for(c->max_model_len, k->block_tokens), sizeof *g->hit_blocks);
    return g->pool && g->cache && g->hit_blocks;
}

enum status blocks_new(const struct blocks_config *c, struct blocks **out, struct error *err)
{
    uint64_t align = 1;
    *out = NULL;
    for (uint32_t i = 0; i < c->n_groups; i++)
        TRY(blocks_check_group(&c->groups[i], i, err));
    struct blocks *b = mem_zalloc(sizeof *b);
    b->n_groups = c->n_groups;
    b->caching = c->caching;
    b->same_size = true;
    b->max_copies = c->max_seqs * c->n_groups;
    b->copies = mem_array(b->max_copies, sizeof *b->copies);
    for (uint32_t i = 0; i < c->n_groups; i++) {
        if (!open_group(&b->groups[i], &c->groups[i], c)) {
            blocks_free(b);
            return error_set(err, STATUS_NO_MEMORY,
                             "the head has no memory for a table of %u KV blocks. Free some memory "
                             "on this machine",
                             c->groups[i].n_blocks);
        }
        align = common_multiple(align, b->groups[i].block_tokens);
        b->same_size = b->same_size && b->groups[i].block_tokens == b->groups[0].block_tokens;
    }
    b->align = align > UINT32_MAX ? UINT32_MAX : (uint32_t)align;
    *out = b;
    return STATUS_OK;
}

void blocks_free(struct blocks *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        block_pool_free(b->groups[i].pool);
        prefix_cache_free(b->groups[i].cache);
        mem_free(b->groups[i].hit_blocks);
    }
    mem_free(b->copies);
    mem_free(b);
}

void blocks_reset(struct blocks *b)
{
    for (uint32_t i = 0; i < b->n_groups; i++) {
        struct blocks_group *g = &b->groups[i];
        block_pool_reset(g->pool, 0);
        prefix_cache_reset(g->cache);
        g->claimed = 0;
        g->promised = 0;
    }
    b->step_sent = b->step_done = 0;
    b->n_copies = b->n_copied_from = 0;
}

/* ---- steps ---- */

void blocks_begin_step(struct blocks *b)
{
    /* The previous plan contained the copies. Their sources stay owned until the plan's result
     * has arrived. */
    for (uint32_t i = 0; i < b->n_copied_from; i++)
        block_pool_release(b->groups[b->copies[i].i_group].pool, &b->copies[i].from, 1,
                           b->step_sent);
    b->n_copies = b->n_copied_from = 0;
    for (uint32_t i = 0; i < b->n_groups; i++)
        b->groups[i].claimed = 0;
}

void blocks_on_sent(struct blocks *b, uint64_t step)
{
    b->step_sent = step;
    b->n_copied_from = b->n_copies;
}

void blocks_on_done(struct blocks *b, uint64_t step)
{
    b->step_done = step;
    for (uint32_t i = 0; i < b->n_groups; i++)
        block_pool_on_done(b->groups[i].pool, step);
}

const struct plan_copy *blocks_copies(const struct blocks *b, uint32_t *n)
{
    *n = b->n_copies;
    return b->copies;
}

/* ---- tables ---- */

size_t blocks_ids_needed(const struct blocks *b, uint32_t n_positions)
{
    size_t n = 0;
    for (uint32_t i = 0; i < b->n_groups; i++)
        n += blocks_for(n_positions, b->groups[i].block_tokens);
    return n;
}

void blocks_init_tables(const struct blocks *b, struct block_table *tables, uint32_t *ids,
                        uint32_t n_positions)
{
    for (uint32_t i = 0; i < b->n_groups; i++) {
        tables[i] = (struct block_table){.ids = ids};
        ids += blocks_for(n_positions, b->groups[i].block_tokens);
    }
}

bool blocks_fit_alone(const struct blocks *b, uint32_t n_positions)
{
    for (uint32_t i = 0; i < b->n_groups; i++)
        if (blocks_at_once(&b->groups[i], n_positions) > block_pool_size(b->groups[i].pool))
            return false;
    return true;
}

static void set_promise(struct blocks_group *g, struct block_table *t)
{
    uint32_t held = t->n - t->first;
    uint32_t promised = t->n_wanted > held ? t->n_wanted - held : 0;
    /* the difference is taken modulo 2^64, so the sum stays right */
    g->promised += (uint64_t)promised - t->n_promised;
    t->n_promised = promised;
}

void blocks_settle(struct blocks *b, struct block_table *tables)
{
    for (uint32_t i = 0; i < b->n_groups; i++) {
        tables[i].n_wanted = 0;
        set_promise(&b->groups[i], &tables[i]);
    }
}

/* ---- room ---- */

/* Returns the number of free blocks that an admission would use. With `others_go`, a hit's
 * blocks that only leaving sequences own count too, since they will be free by then. */
static uint64_t admit_needs(const struct blocks *b, const struct blocks_hit *hit, uint32_t i,
                            uint32_t n_ids, bool others_go)
{
    const struct blocks_group *g = &b->groups[i];
    uint32_t n_held = hit->n[i] - hit->first[i], whole = blocks_at_once(g, n_ids);
    uint64_t need = whole > n_held ? whole - n_held : 0;
    for (uint32_t k = hit->first[i]; k < hit->n[i]; k++)
        need += block_pool_owners(g->pool, g->hit_blocks[k]) <= others_go;
    if (hit->n_tail)
        need += block_pool_owners(g->pool, hit->tail[i]) <= others_go;
    return need;
}

uint64_t blocks_spare_for_others(const struct blocks_group *g, uint32_t n_running)
{
    return n_running == 0 ? 0
                          : block_pool_size(g->pool) / WATERMARK_SHARE + n_running + g->promised;
}

bool blocks_fit_admit(const struct blocks *b, const struct blocks_hit *hit, uint32_t n_ids,
                      uint32_t n_running, bool soon)
{
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct blocks_group *g = &b->groups[i];
        uint64_t need =
            admit_needs(b, hit, i, n_ids, false) + blocks_spare_for_others(g, n_running);
        uint64_t room = block_pool_n_free(g->pool);
        if (soon)
            room += block_pool_n_quarantined(g->pool);
        if (need + g->claimed > room)
            return false;
    }
    return true;
}

void blocks_count_gain(const struct blocks *b, const struct block_table *tables,
                       struct blocks_gain *gain)
{
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct block_table *t = &tables[i];
        for (uint32_t k = t->first; k < t->n; k++)
            gain->n[i] += block_pool_owners(b->groups[i].pool, t->ids[k]) == 1;
        gain->n[i] += t->n_promised;
    }
}

bool blocks_fit_after(const struct blocks *b, const struct blocks_hit *hit, uint32_t n_ids,
                      uint32_t n_running, const struct blocks_gain *gain)
{
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct blocks_group *g = &b->groups[i];
        uint64_t need = admit_needs(b, hit, i, n_ids, true) + blocks_spare_for_others(g, n_running);
        uint64_t room = block_pool_n_free(g->pool) + block_pool_n_quarantined(g->pool);
        if (need + g->claimed > room + gain->n[i])
            return false;
    }
    return true;
}

/* Returns the number of blocks that the next run will drop and that only this sequence owns. */
static uint32_t n_droppable(const struct blocks_group *g, const struct block_table *t,
                            uint32_t position)
{
    uint32_t n = 0, end = first_kept(g, t, position);
    for (uint32_t k = t->first; k < end; k++)
        n += block_pool_owners(g->pool, t->ids[k]) == 1;
    return n;
}

enum blocks_fit blocks_fit(struct blocks *b, const struct block_table *tables, uint32_t position,
                           uint32_t end)
{
    enum blocks_fit fit = BLOCKS_FIT;
    uint32_t need[BLOCKS_MAX_GROUPS];
    bool in_flight = b->step_sent > b->step_done;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct blocks_group *g = &b->groups[i];
        const struct block_table *t = &tables[i];
        uint32_t n_after = blocks_for(end, g->block_tokens);
        need[i] = n_after > t->n ? n_after - t->n : 0;
        if (need[i] == 0)
            continue;
        uint64_t droppable = n_droppable(g, t, position);
        uint64_t wanted = (uint64_t)need[i] + g->claimed;
        uint64_t now = block_pool_n_free(g->pool) + (in_flight ? 0 : droppable);
        uint64_t soon = now + block_pool_n_quarantined(g->pool) + (in_flight ? droppable : 0);
        if (wanted > soon)
            return BLOCKS_FIT_NOT;
        if (wanted > now)
            fit = BLOCKS_FIT_SOON;
    }
    if (fit == BLOCKS_FIT_SOON)
        for (uint32_t i = 0; i < b->n_groups; i++)
            b->groups[i].claimed += need[i];
    return fit;
}

/* ---- growth ---- */

static void drop_left_of_window(struct blocks *b, struct blocks_group *g, struct block_table *t,
                                uint32_t i_group, uint32_t slot, uint32_t position)
{
    uint32_t first = first_kept(g, t, position);
    for (uint32_t k = t->first; k < first; k++)
        t->digest -= plan_digest_block(slot, i_group, k, t->ids[k]);
    block_pool_release(g->pool, t->ids + t->first, first - t->first, b->step_sent);
    t->first = first;
}

void blocks_alloc(struct blocks *b, struct blocks_group *g, uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bool was_kept = false;
        ids[i] = block_pool_alloc(g->pool, &was_kept);
        assert(ids[i] != BLOCK_NONE); /* blocks_fit or blocks_fit_admit guarantees a block */
        b->n_evictions += was_kept;
        prefix_cache_prefetch_entry(g->cache, ids[i], n > 1);
    }
    for (uint32_t i = 0; i < n; i++)
        prefix_cache_forget(g->cache, ids[i]);
}

uint32_t blocks_extend(struct blocks *b, struct block_table *tables, uint32_t slot,
                       uint32_t position, uint32_t end, struct plan_blocks *out)
{
    uint32_t n_out = 0;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        struct blocks_group *g = &b->groups[i];
        struct block_table *t = &tables[i];
        uint32_t n_after = blocks_for(end, g->block_tokens);
        if (n_after > t->n) {
            drop_left_of_window(b, g, t, i, slot, position);
            blocks_alloc(b, g, t->ids + t->n, n_after - t->n);
            t->n = n_after;
        }
        if (t->first == t->first_told && t->n == t->n_told)
            continue;
        for (uint32_t k = t->n_told; k < t->n; k++)
            t->digest += plan_digest_block(slot, i, k, t->ids[k]);
        out[n_out++] = (struct plan_blocks){
            i, t->first - t->first_told, {t->ids + t->n_told, t->n - t->n_told}};
        t->first_told = t->first;
        t->n_told = t->n;
        set_promise(g, t);
    }
    return n_out;
}

uint32_t blocks_covered(const struct blocks *b, const struct block_table *tables)
{
    uint32_t covered = UINT32_MAX;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        uint32_t n = tables[i].n * b->groups[i].block_tokens;
        covered = n < covered ? n : covered;
    }
    return covered;
}

void blocks_release(struct blocks *b, struct block_table *tables)
{
    for (uint32_t i = 0; i < b->n_groups; i++) {
        struct blocks_group *g = &b->groups[i];
        struct block_table *t = &tables[i];
        block_pool_release(g->pool, t->ids + t->first, t->n - t->first, b->step_sent);
        g->promised -= t->n_promised;
        *t = (struct block_table){.ids = t->ids};
    }
}

uint64_t blocks_digest(const struct blocks *b, const struct block_table *tables)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < b->n_groups; i++)
        sum += tables[i].digest;
    return sum;
}

/* ---- queries ---- */

void blocks_get_stats(const struct blocks *b, struct blocks_stats *out)
{
    *out = (struct blocks_stats){.n_evictions = b->n_evictions, .n_copies = b->n_all_copies};
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct block_pool *p = b->groups[i].pool;
        out->n_blocks += block_pool_size(p);
        out->n_used += block_pool_size(p) - block_pool_n_free(p);
    }
}

uint32_t blocks_tokens(const struct blocks *b, uint32_t i_group)
{
    return b->groups[i_group].block_tokens;
}

const struct block_pool *blocks_pool(const struct blocks *b, uint32_t i_group)
{
    return b->groups[i_group].pool;
}

uint64_t blocks_promised(const struct blocks *b, uint32_t i_group)
{
    return b->groups[i_group].promised;
}

bool blocks_check(const struct blocks *b, struct error *err)
{
    for (uint32_t i = 0; i < b->n_groups; i++)
        if (!block_pool_check(b->groups[i].pool, err) ||
            !prefix_cache_check(b->groups[i].cache, err))
            return false;
    return true;
}
