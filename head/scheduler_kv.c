/* Block tables of the sequences, per KV group. A sequence holds blocks only for positions that were
 * scheduled; a window group drops what no later position can see. */
#include <assert.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "head/scheduler_internal.h"

enum {
    BLOCK_TOKENS_STEP = 16,
    MAX_BLOCKS = 1 << 24, /* what a worker may claim to hold */
};

static uint32_t largest_chunk(const struct scheduler_config *c)
{
    uint32_t n = c->max_num_batched_tokens;
    if (c->long_prefill_token_threshold && c->long_prefill_token_threshold < n)
        n = c->long_prefill_token_threshold;
    return n;
}

enum status scheduler_check_kv_group(const struct kv_group *k, uint32_t i, struct error *err)
{
    if (k->block_tokens == 0 || k->block_tokens % BLOCK_TOKENS_STEP ||
        k->block_tokens > PREFIX_MAX_BLOCK_TOKENS)
        return error_set(err, STATUS_INVALID,
                         "KV group %u: block_tokens is %u, want a multiple of %d up to %u", i,
                         k->block_tokens, BLOCK_TOKENS_STEP, PREFIX_MAX_BLOCK_TOKENS);
    if (k->n_blocks == 0 || k->n_blocks > MAX_BLOCKS)
        return error_set(err, STATUS_INVALID, "KV group %u: n_blocks is %u, want 1 .. %d", i,
                         k->n_blocks, MAX_BLOCKS);
    if (k->kind == KV_WINDOW && k->window_tokens == 0)
        return error_set(err, STATUS_INVALID, "KV group %u: a window of 0 tokens", i);
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

enum status kv_open(struct scheduler *s, struct error *err)
{
    uint64_t align = 1;
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        const struct kv_group *k = &s->c.kv_groups[i];
        struct kv_group_state *g = &s->groups[i];
        TRY(scheduler_check_kv_group(k, i, err));
        g->block_tokens = k->block_tokens;
        g->window = k->kind == KV_WINDOW ? k->window_tokens : 0;
        g->max_held = g->window ? blocks_for(largest_chunk(&s->c), g->block_tokens) +
                                      blocks_for(g->window, g->block_tokens) + 1
                                : UINT32_MAX;
        g->pool = block_pool_new(k->n_blocks);
        if (s->c.enable_prefix_caching) {
            uint32_t n = blocks_for(s->c.max_model_len, g->block_tokens);
            g->cache = prefix_cache_new(k->n_blocks, g->block_tokens);
            g->hashes = mem_try_array(n + 1, sizeof *g->hashes);
            g->hit_blocks = mem_try_array(n, sizeof *g->hit_blocks);
        }
        if (!g->pool || (s->c.enable_prefix_caching && (!g->cache || !g->hashes || !g->hit_blocks)))
            return error_set(err, STATUS_NO_MEMORY, "no memory for the table of %u KV blocks",
                             k->n_blocks);
        align = common_multiple(align, g->block_tokens);
    }
    s->hit_align = align > UINT32_MAX ? UINT32_MAX : (uint32_t)align;
    return STATUS_OK;
}

void kv_close(struct scheduler *s)
{
    for (uint32_t i = 0; i < SCHEDULER_MAX_KV_GROUPS; i++) {
        struct kv_group_state *g = &s->groups[i];
        block_pool_free(g->pool);
        prefix_cache_free(g->cache);
        mem_free(g->hashes);
        mem_free(g->hit_blocks);
        *g = (struct kv_group_state){0};
    }
}

uint32_t kv_blocks_at_once(const struct kv_group_state *g, uint32_t n_tokens)
{
    uint32_t n = blocks_for(n_tokens, g->block_tokens);
    return n < g->max_held ? n : g->max_held;
}

/* ---- prefix hits ---- */

/* Walks from the root while blocks are there. Returns the number of blocks found. */
static uint32_t walk_from_root(struct kv_group_state *g, const struct request *r,
                               struct block_hash root, uint32_t n_blocks)
{
    struct prefix_key k = {.parent_hash = root, .parent_content = PREFIX_CONTENT_ROOT};
    for (uint32_t i = 0; i < n_blocks; i++) {
        k.ids = r->ids + (size_t)i * g->block_tokens;
        k.hash = prefix_hash_block(k.parent_hash, k.ids, g->block_tokens);
        uint32_t block = prefix_cache_find(g->cache, &k);
        if (block == BLOCK_NONE)
            return i;
        g->hit_blocks[i] = block;
        g->hashes[i + 1] = k.hash;
        k.parent_hash = k.hash;
        k.parent_content = prefix_cache_content(g->cache, block);
    }
    return n_blocks;
}

/* The first block a run at position start needs. One token more than the window is kept: cheap, and
 * right for both ways of counting a window. */
static uint32_t first_needed(const struct kv_group_state *g, uint32_t start)
{
    return g->window && start > g->window ? (start - g->window) / g->block_tokens : 0;
}

/* The longest hit of at most n_tokens that a window group allows: its last window must be there.
 * hashes[0 .. n_tokens / block_tokens] are filled in. */
static uint32_t longest_window_hit(const struct kv_group_state *g, const struct request *r,
                                   uint32_t n_tokens, uint32_t align)
{
    uint32_t end = n_tokens - n_tokens % align;
    while (end > 0) {
        uint32_t first = first_needed(g, end), i = end / g->block_tokens;
        for (; i > first; i--) {
            struct prefix_key k = {.hash = g->hashes[i],
                                   .parent_hash = g->hashes[i - 1],
                                   .parent_content = PREFIX_CONTENT_ANY,
                                   .ids = r->ids + (size_t)(i - 1) * g->block_tokens};
            uint32_t block = prefix_cache_find(g->cache, &k);
            if (block == BLOCK_NONE)
                break;
            g->hit_blocks[i - 1] = block;
        }
        if (i == first)
            return end;
        end = (i - 1) * g->block_tokens; /* block i - 1 is not there: end before it */
        end -= end % align;
    }
    return 0;
}

static void hash_all(struct kv_group_state *g, const struct request *r, uint32_t n_tokens)
{
    for (uint32_t i = 0; i < n_tokens / g->block_tokens; i++)
        g->hashes[i + 1] =
            prefix_hash_block(g->hashes[i], r->ids + (size_t)i * g->block_tokens, g->block_tokens);
}

/* Shortens the hit until every window group agrees; each round makes it shorter. */
static uint32_t agree_on_windows(struct scheduler *s, const struct request *r, uint32_t n_tokens)
{
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++)
        if (s->groups[i].window)
            hash_all(&s->groups[i], r, n_tokens);
    uint32_t before;
    do {
        before = n_tokens;
        for (uint32_t i = 0; i < s->c.n_kv_groups; i++)
            if (s->groups[i].window)
                n_tokens = longest_window_hit(&s->groups[i], r, n_tokens, s->hit_align);
    } while (n_tokens != before);
    return n_tokens;
}

void kv_find_hit(const struct scheduler *s_const, const struct request *r, struct kv_hit *out)
{
    struct scheduler *s = (struct scheduler *)s_const; /* writes scratch only */
    *out = (struct kv_hit){0};
    /* log-probabilities of the prompt need every position computed */
    if (!s->c.enable_prefix_caching || r->sampling.n_prompt_logprobs >= 0 ||
        r->n_ids > s->c.max_model_len)
        return;
    struct block_hash root = prefix_hash_root(r->salt, r->sampling.lora);
    uint32_t n_tokens = r->n_ids - 1; /* at least one is computed: its logits are needed */
    n_tokens -= n_tokens % s->hit_align;
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        struct kv_group_state *g = &s->groups[i];
        g->hashes[0] = root;
        if (g->window)
            continue;
        n_tokens = g->block_tokens * walk_from_root(g, r, root, n_tokens / g->block_tokens);
        n_tokens -= n_tokens % s->hit_align;
    }
    out->n_tokens = agree_on_windows(s, r, n_tokens);
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        const struct kv_group_state *g = &s->groups[i];
        out->first[i] = first_needed(g, out->n_tokens);
        out->n[i] = out->n_tokens / g->block_tokens;
    }
}

void kv_take_hit(struct scheduler *s, struct seq *x, const struct kv_hit *hit)
{
    struct block_hash root = prefix_hash_root(x->r->salt, x->r->sampling.lora);
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        struct kv_group_state *g = &s->groups[i];
        struct kv_table *t = &x->tables[i];
        t->first = hit->first[i];
        t->n = t->n_hashed = hit->n[i];
        t->hash = root;
        t->content = PREFIX_CONTENT_ROOT;
        for (uint32_t k = t->first; k < t->n; k++) {
            t->ids[k] = g->hit_blocks[k];
            block_pool_acquire(g->pool, t->ids[k]);
        }
        if (t->n > 0) {
            t->hash = g->hashes[t->n];
            t->content = t->first < t->n ? prefix_cache_content(g->cache, t->ids[t->n - 1])
                                         : PREFIX_CONTENT_UNKNOWN;
        }
    }
    x->n_scheduled = x->n_computed = hit->n_tokens;
}

/* ---- room ---- */

/* Blocks of x alone that its next run will drop. */
static uint32_t n_droppable(const struct kv_group_state *g, const struct seq *x,
                            const struct kv_table *t)
{
    uint32_t n = 0;
    for (uint32_t k = t->first; k < first_needed(g, x->n_scheduled) && k < t->n; k++)
        n += block_pool_owners(g->pool, t->ids[k]) == 1;
    return n;
}

enum kv_fit kv_fit_run(struct scheduler *s, struct seq *x, uint32_t n_tokens)
{
    enum kv_fit fit = KV_FIT_YES;
    uint32_t need[SCHEDULER_MAX_KV_GROUPS];
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        const struct kv_group_state *g = &s->groups[i];
        const struct kv_table *t = &x->tables[i];
        uint32_t n_after = blocks_for(x->n_scheduled + n_tokens, g->block_tokens);
        need[i] = n_after - t->n;
        if (need[i] == 0)
            continue;
        uint32_t droppable = n_droppable(g, x, t);
        uint32_t wanted = need[i] + g->claimed;
        uint32_t now = block_pool_n_free(g->pool) + (scheduler_in_flight(s) ? 0 : droppable);
        uint32_t soon =
            now + block_pool_n_quarantined(g->pool) + (scheduler_in_flight(s) ? droppable : 0);
        if (wanted > soon)
            return KV_FIT_NO;
        if (wanted > now)
            fit = KV_FIT_WAIT;
    }
    if (fit == KV_FIT_WAIT)
        for (uint32_t i = 0; i < s->c.n_kv_groups; i++)
            s->groups[i].claimed += need[i];
    return fit;
}

bool kv_fit_admit(const struct scheduler *s, const struct seq *x, const struct kv_hit *hit)
{
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        const struct kv_group_state *g = &s->groups[i];
        uint32_t n_held = hit->n[i] - hit->first[i];
        uint32_t whole = kv_blocks_at_once(g, x->r->n_ids);
        uint64_t need = whole > n_held ? whole - n_held : 0;
        for (uint32_t k = hit->first[i]; k < hit->n[i]; k++)
            need += block_pool_is_free(g->pool, g->hit_blocks[k]);
        if (s->running.n > 0)
            need += (uint64_t)g->watermark + g->promised;
        if (need + g->claimed > block_pool_n_free(g->pool))
            return false;
    }
    return true;
}

/* ---- tables ---- */

static void release_block(struct scheduler *s, struct kv_group_state *g, uint32_t id)
{
    block_pool_release(g->pool, id, s->step_sent, g->cache && prefix_cache_holds(g->cache, id));
}

static uint32_t drop_left_of_window(struct scheduler *s, struct kv_group_state *g, struct seq *x,
                                    struct kv_table *t)
{
    uint32_t first = first_needed(g, x->n_scheduled), n = 0;
    for (; t->first < first && t->first < t->n; t->first++, n++)
        release_block(s, g, t->ids[t->first]);
    return n;
}

void kv_extend(struct scheduler *s, struct seq *x, uint32_t n_tokens, bool admitted,
               struct plan_run *run)
{
    run->blocks = s->p.blocks + s->p.n_blocks;
    run->n_blocks = 0;
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        struct kv_group_state *g = &s->groups[i];
        struct kv_table *t = &x->tables[i];
        /* a rank that has just admitted it holds nothing: the hit goes along, and what it skips */
        uint32_t n_before = admitted ? t->first : t->n;
        uint32_t n_dropped = admitted ? t->first : drop_left_of_window(s, g, x, t);
        for (uint32_t n = blocks_for(x->n_scheduled + n_tokens, g->block_tokens); t->n < n;) {
            uint32_t id = block_pool_alloc(g->pool);
            assert(id != BLOCK_NONE); /* kv_fit_run or kv_fit_admit said so */
            if (g->cache)
                prefix_cache_forget(g->cache, id);
            t->ids[t->n++] = id;
        }
        if (n_dropped == 0 && t->n == n_before)
            continue;
        s->p.blocks[s->p.n_blocks++] =
            (struct plan_blocks){i, n_dropped, {t->ids + n_before, t->n - n_before}};
        run->n_blocks++;
    }
}

void kv_register(struct scheduler *s, struct seq *x)
{
    for (uint32_t i = 0; s->c.enable_prefix_caching && i < s->c.n_kv_groups; i++) {
        struct kv_group_state *g = &s->groups[i];
        struct kv_table *t = &x->tables[i];
        uint32_t n_full = x->n_computed / g->block_tokens;
        for (uint32_t k = t->n_hashed; k < n_full; k++) {
            struct prefix_key key = {.parent_hash = t->hash,
                                     .parent_content = t->content,
                                     .ids = x->r->ids + (size_t)k * g->block_tokens};
            key.hash = prefix_hash_block(t->hash, key.ids, g->block_tokens);
            t->hash = key.hash;
            t->content = k >= t->first ? prefix_cache_register(g->cache, t->ids[k], &key)
                                       : PREFIX_CONTENT_UNKNOWN; /* already out of the window */
        }
        if (n_full > t->n_hashed)
            t->n_hashed = n_full;
    }
}

void kv_release(struct scheduler *s, struct seq *x)
{
    for (uint32_t i = 0; i < s->c.n_kv_groups; i++) {
        struct kv_table *t = &x->tables[i];
        while (t->n > t->first) /* last block first: a prefix outlives what hangs on it */
            release_block(s, &s->groups[i], t->ids[--t->n]);
        *t = (struct kv_table){.ids = t->ids};
    }
    x->n_scheduled = x->n_computed = 0;
}
