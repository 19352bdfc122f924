/* Keeps the owners and the free blocks of one KV group. block_pool.h has the rules.
 *
 * tables.c, prefix.c and move.c allocate, acquire and release blocks. The scheduler reports
 * finished steps through `block_pool_on_done`, which shortens the quarantine.
 *
 * Invariants: one thread uses the pool; a call is O(1) per block; nothing is allocated after
 * `block_pool_new`. A block is either owned or in exactly one list. Each list is in order of
 * release, so its quarantined blocks are the last ones. */
#include "head/kv/block_pool.h"

#include <assert.h>

#include "common/base/mem.h"

enum { LIST_EMPTY, LIST_KEPT, LIST_COUNT };
/* NODE_IDS: ids in a node; PREFETCH: how many blocks ahead a prefetch is */
enum { NODE_IDS = 11, SLOT_BITS = 4, PREFETCH = 12 };
#define NODE_NONE UINT32_MAX

/* Packs the state of a block into one word, so that sixteen states fit into a cache line,
 * because the tables of a step's sequences use thousands of them. An owned block has its number
 * of owners (at most the slots of a replica). A free block has its place in a list (node <<
 * SLOT_BITS | slot) and the name of that list. KEEP_BIT says that the content is worth keeping. */
struct block {
    uint32_t word;
};
#define FREE_BIT   (1u << 31)
#define KEEP_BIT   (1u << 30)
#define KEPT_LIST  (1u << 29) /* set when a free block is in LIST_KEPT */
#define COUNT_MASK (KEPT_LIST - 1)

/* Holds a node of an unrolled list: a cache line of ids that were released in one step, in
 * order. An allocation therefore reads ids instead of following one block to the next, and can
 * prefetch several blocks. */
struct node {
    uint32_t next, prev;
    uint64_t step; /* last step that was sent while these blocks were owned */
    uint16_t live; /* bit i: ids[i] is still in the list */
    uint16_t n;    /* ids used, in the list or not */
    uint32_t ids[NODE_IDS];
};
_Static_assert(sizeof(struct node) == 64, "a cache line");

struct list {
    uint32_t head, tail;    /* first and last node; each node has at least one live id */
    uint32_t n;             /* blocks in the list */
    uint32_t n_quarantined; /* the last n_quarantined blocks are in quarantine */
    uint32_t by_step[BLOCK_POOL_MAX_DEPTH]; /* quarantined blocks by step % depth */
};

struct block_pool {
    uint32_t n_blocks;
    uint64_t step_done;
    struct list lists[LIST_COUNT];
    struct block *blocks;
    struct node *nodes;
    uint32_t free_node, n_nodes; /* n_nodes: first node that was never used */
    struct mem_table block_table, node_table;
};

static bool is_free(const struct block *b)
{
    return b->word & FREE_BIT;
}

static uint32_t owners_of(const struct block *b)
{
    return is_free(b) ? 0 : b->word & COUNT_MASK;
}

static uint32_t keep_of(const struct block *b)
{
    return b->word & KEEP_BIT ? LIST_KEPT : LIST_EMPTY;
}

static uint32_t list_of(const struct block *b)
{
    return b->word & KEPT_LIST ? LIST_KEPT : LIST_EMPTY;
}

static uint32_t node_of(const struct block *b)
{
    return (b->word & COUNT_MASK) >> SLOT_BITS;
}

static uint32_t slot_of(const struct block *b)
{
    return b->word & ((1u << SLOT_BITS) - 1);
}

static bool is_quarantined(const struct block_pool *p, const struct node *x)
{
    return x->step > p->step_done;
}

/* ---- nodes ---- */

static uint32_t node_append(struct block_pool *p, struct list *l, uint64_t step)
{
    uint32_t i = p->free_node;
    if (i != NODE_NONE)
        p->free_node = p->nodes[i].next;
    else
        i = p->n_nodes++;
    struct node *x = &p->nodes[i];
    x->next = NODE_NONE;
    x->prev = l->tail;
    x->step = step;
    x->live = x->n = 0;
    *(l->tail != NODE_NONE ? &p->nodes[l->tail].next : &l->head) = i;
    return l->tail = i;
}

static void node_remove(struct block_pool *p, struct list *l, uint32_t i)
{
    struct node *x = &p->nodes[i];
    *(x->prev != NODE_NONE ? &p->nodes[x->prev].next : &l->head) = x->next;
    *(x->next != NODE_NONE ? &p->nodes[x->next].prev : &l->tail) = x->prev;
    x->next = p->free_node;
    p->free_node = i;
}

/* ---- lists ---- */

/* Appends a block without counting it, so that a caller can count several at once (list_count). */
static inline void list_put(struct block_pool *p, uint32_t id, uint64_t step_sent)
{
    struct block *b = &p->blocks[id];
    bool keep = b->word & KEEP_BIT;
    struct list *l = &p->lists[keep ? LIST_KEPT : LIST_EMPTY];
    uint32_t i = l->tail;
    if (i == NODE_NONE || p->nodes[i].n == NODE_IDS || p->nodes[i].step != step_sent)
        i = node_append(p, l, step_sent);
    struct node *x = &p->nodes[i];
    b->word = FREE_BIT | (keep ? KEEP_BIT | KEPT_LIST : 0) | i << SLOT_BITS | x->n;
    x->live |= (uint16_t)(1u << x->n);
    x->ids[x->n++] = id;
}

static void list_count(struct block_pool *p, struct list *l, uint32_t n, uint64_t step_sent)
{
    l->n += n;
    if (step_sent <= p->step_done)
        return;
    l->n_quarantined += n;
    l->by_step[step_sent % BLOCK_POOL_MAX_DEPTH] += n;
}

static inline void list_take(struct block_pool *p, struct list *l, uint32_t i_node, uint32_t slot)
{
    struct node *x = &p->nodes[i_node];
    x->live &= (uint16_t) ~(1u << slot);
    l->n--;
    if (!x->live)
        node_remove(p, l, i_node);
}

static void list_remove(struct block_pool *p, const struct block *b)
{
    struct list *l = &p->lists[list_of(b)];
    const struct node *x = &p->nodes[node_of(b)];
    if (is_quarantined(p, x)) {
        l->n_quarantined--;
        l->by_step[x->step % BLOCK_POOL_MAX_DEPTH]--;
    }
    list_take(p, l, node_of(b), slot_of(b));
}

/* Takes the first block of the list, and prefetches the data for the next calls. */
static uint32_t list_pop(struct block_pool *p, struct list *l)
{
    const struct node *x = &p->nodes[l->head];
    uint32_t slot = (uint32_t)__builtin_ctz(x->live), id = x->ids[slot];
    __builtin_prefetch(&p->blocks[x->ids[slot + 6 < x->n ? slot + 6 : slot]], 1);
    if (slot == 0 && x->next != NODE_NONE) {
        const struct node *next = &p->nodes[x->next];
        __builtin_prefetch(next);
    } else if (slot >= NODE_IDS - 6 && x->next != NODE_NONE) {
        __builtin_prefetch(&p->blocks[p->nodes[x->next].ids[slot - (NODE_IDS - 6)]], 1);
    }
    list_take(p, l, l->head, slot);
    return id;
}

/* ---- the pool ---- */

struct block_pool *block_pool_new(uint32_t n_blocks)
{
    assert((uint64_t)n_blocks + LIST_COUNT <= COUNT_MASK >> SLOT_BITS);
    struct block_pool *p = mem_zalloc(sizeof *p);
    p->n_blocks = n_blocks;
    if (!mem_table_open(&p->block_table, n_blocks, sizeof *p->blocks) ||
        !mem_table_open(&p->node_table, (size_t)n_blocks + LIST_COUNT, sizeof *p->nodes)) {
        block_pool_free(p);
        return NULL;
    }
    p->blocks = p->block_table.at;
    p->nodes = p->node_table.at;
    block_pool_reset(p, 0);
    return p;
}

void block_pool_free(struct block_pool *p)
{
    if (!p)
        return;
    mem_table_close(&p->block_table);
    mem_table_close(&p->node_table);
    mem_free(p);
}

void block_pool_reset(struct block_pool *p, uint64_t step_done)
{
    p->step_done = step_done;
    for (int i = 0; i < LIST_COUNT; i++)
        p->lists[i] = (struct list){.head = NODE_NONE, .tail = NODE_NONE};
    p->free_node = NODE_NONE;
    p->n_nodes = 0;
    for (uint32_t id = 0; id < p->n_blocks; id++) {
        p->blocks[id] = (struct block){0};
        list_put(p, id, step_done);
    }
    list_count(p, &p->lists[LIST_EMPTY], p->n_blocks, step_done);
}

static bool can_give(const struct list *l)
{
    return l->n > l->n_quarantined;
}

uint32_t block_pool_alloc(struct block_pool *p, bool *was_kept)
{
    struct list *l = &p->lists[LIST_EMPTY];
    if (!can_give(l))
        l = &p->lists[LIST_KEPT];
    if (!can_give(l))
        return BLOCK_NONE;
    uint32_t id = list_pop(p, l);
    struct block *b = &p->blocks[id];
    *was_kept = b->word & KEEP_BIT;
    b->word = 1;
    return id;
}

void block_pool_acquire(struct block_pool *p, uint32_t id)
{
    assert(id < p->n_blocks);
    struct block *b = &p->blocks[id];
    if (is_free(b)) {
        list_remove(p, b);
        b->word &= KEEP_BIT;
    }
    b->word++;
}

void block_pool_release(struct block_pool *p, const uint32_t *ids, uint32_t n, uint64_t step_sent)
{
    uint32_t n_put[LIST_COUNT] = {0};
    assert(step_sent <= p->step_done + BLOCK_POOL_MAX_DEPTH);
    while (n-- > 0) {
        if (n >= PREFETCH)
            __builtin_prefetch(&p->blocks[ids[n - PREFETCH]], 1);
        struct block *b = &p->blocks[ids[n]];
        assert(ids[n] < p->n_blocks && owners_of(b) != 0);
        b->word--;
        if (b->word & COUNT_MASK)
            continue;
        n_put[keep_of(b)]++;
        list_put(p, ids[n], step_sent);
    }
    for (int i = 0; i < LIST_COUNT; i++)
        list_count(p, &p->lists[i], n_put[i], step_sent);
}

void block_pool_keep(struct block_pool *p, uint32_t id, bool keep)
{
    assert(id < p->n_blocks);
    uint32_t *word = &p->blocks[id].word;
    *word = (*word & ~KEEP_BIT) | (keep ? KEEP_BIT : 0);
}

void block_pool_on_done(struct block_pool *p, uint64_t step)
{
    for (; p->step_done < step; p->step_done++)
        for (int i = 0; i < LIST_COUNT; i++) {
            struct list *l = &p->lists[i];
            uint32_t *n = &l->by_step[(p->step_done + 1) % BLOCK_POOL_MAX_DEPTH];
            l->n_quarantined -= *n;
            *n = 0;
        }
}

void block_pool_prefetch(const struct block_pool *p, uint32_t id)
{
    __builtin_prefetch(&p->blocks[id], 1);
}

uint32_t block_pool_size(const struct block_pool *p)
{
    return p->n_blocks;
}

uint32_t block_pool_n_free(const struct block_pool *p)
{
    uint32_t n = 0;
    for (int i = 0; i < LIST_COUNT; i++)
        n += p->lists[i].n - p->lists[i].n_quarantined;
    return n;
}

uint32_t block_pool_n_quarantined(const struct block_pool *p)
{
    return p->lists[LIST_EMPTY].n_quarantined + p->lists[LIST_KEPT].n_quarantined;
}

uint32_t block_pool_owners(const struct block_pool *p, uint32_t id)
{
    assert(id < p->n_blocks);
    return owners_of(&p->blocks[id]);
}

void block_pool_count(const struct block_pool *p, uint32_t begin, uint32_t end, uint32_t stride,
                      uint32_t counts[BLOCK_USE_COUNT])
{
    assert(begin <= end && end <= p->n_blocks && stride > 0);
    for (uint64_t i = begin; i < end; i += stride) {
        uint32_t word = p->blocks[i].word;
        enum block_use use = BLOCK_OWNED;
        if (word & FREE_BIT)
            use = word & KEPT_LIST ? BLOCK_CACHED : BLOCK_EMPTY;
        else if ((word & COUNT_MASK) > 1)
            use = BLOCK_SHARED;
        counts[use]++;
    }
}

bool block_pool_is_free(const struct block_pool *p, uint32_t id)
{
    assert(id < p->n_blocks);
    const struct block *b = &p->blocks[id];
    return is_free(b) && !is_quarantined(p, &p->nodes[node_of(b)]);
}

struct tally {
    uint32_t n, n_quarantined, by_step[BLOCK_POOL_MAX_DEPTH];
    uint64_t step;
};

/* Checks that the node's blocks point back to it, and that nodes are in order of release. */
static bool check_node(const struct block_pool *p, int i_list, uint32_t i_node, struct tally *t)
{
    const struct node *x = &p->nodes[i_node];
    bool ok = x->live != 0 && x->n <= NODE_IDS && x->live < 1u << x->n && x->step >= t->step;
    t->step = x->step;
    for (uint32_t slot = 0; ok && slot < x->n; slot++) {
        const struct block *b = &p->blocks[x->ids[slot]];
        if (!(x->live & 1u << slot))
            continue;
        ok = is_free(b) && list_of(b) == (uint32_t)i_list && node_of(b) == i_node &&
             slot_of(b) == slot && ++t->n <= p->n_blocks;
        t->n_quarantined += is_quarantined(p, x);
        t->by_step[x->step % BLOCK_POOL_MAX_DEPTH] += is_quarantined(p, x);
    }
    return ok;
}

static bool check_list(const struct block_pool *p, int i, struct error *err)
{
    const struct list *l = &p->lists[i];
    struct tally t = {0};
    uint32_t prev = NODE_NONE;
    bool ok = true;
    for (uint32_t k = l->head; ok && k != NODE_NONE; prev = k, k = p->nodes[k].next)
        ok = p->nodes[k].prev == prev && check_node(p, i, k, &t);
    ok = ok && t.n == l->n && l->tail == prev && t.n_quarantined == l->n_quarantined;
    for (uint32_t k = 0; k < BLOCK_POOL_MAX_DEPTH; k++)
        ok = ok && t.by_step[k] == l->by_step[k];
    if (!ok)
        error_set(err, STATUS_INTERNAL,
                  "block list %d has %u blocks, %u of them in quarantine, but its counts are %u "
                  "and %u. Report this bug",
                  i, t.n, t.n_quarantined, l->n, l->n_quarantined);
    return ok;
}

bool block_pool_check(const struct block_pool *p, struct error *err)
{
    uint32_t n_owned = 0, n_listed = p->lists[LIST_EMPTY].n + p->lists[LIST_KEPT].n;
    if (!check_list(p, LIST_EMPTY, err) || !check_list(p, LIST_KEPT, err))
        return false;
    for (uint32_t id = 0; id < p->n_blocks; id++)
        n_owned += owners_of(&p->blocks[id]) > 0;
    if (n_owned + n_listed == p->n_blocks)
        return true;
    error_set(err, STATUS_INTERNAL,
              "%u blocks are owned and %u are in lists, but the pool has %u. Report this bug",
              n_owned, n_listed, p->n_blocks);
    return false;
}
