#include "head/block_pool.h"

#include <assert.h>

#include "common/base/mem.h"

enum { LIST_EMPTY, LIST_KEPT, LIST_COUNT };

/* 16 bytes, four to a cache line: the tables of a step's sequences touch thousands of them. */
struct block {
    uint32_t next, prev;  /* in a list, when it has no owner */
    uint64_t step : 40;   /* the last step that was sent while it was owned */
    uint64_t owners : 22; /* at most as many as a group has slots */
    uint64_t keep : 1;
    uint64_t list : 1; /* which, when it has no owner */
};

struct list {
    uint32_t head, tail, n;
    uint32_t n_quarantined;                 /* the last so many */
    uint32_t by_step[BLOCK_POOL_MAX_DEPTH]; /* of these, by step % depth */
};

struct block_pool {
    uint32_t n_blocks;
    uint64_t step_done;
    struct list lists[LIST_COUNT];
    struct block *blocks;
};

static bool is_quarantined(const struct block_pool *p, const struct block *b)
{
    return b->step > p->step_done;
}

static void list_append(struct block_pool *p, uint32_t id, uint64_t step_sent)
{
    struct block *b = &p->blocks[id];
    struct list *l = &p->lists[b->keep];
    b->list = b->keep;
    b->step = step_sent;
    b->prev = l->tail;
    b->next = BLOCK_NONE;
    if (l->tail != BLOCK_NONE)
        p->blocks[l->tail].next = id;
    else
        l->head = id;
    l->tail = id;
    l->n++;
    if (is_quarantined(p, b)) {
        l->n_quarantined++;
        l->by_step[step_sent % BLOCK_POOL_MAX_DEPTH]++;
    }
}

static void list_remove(struct block_pool *p, struct block *b)
{
    struct list *l = &p->lists[b->list];
    if (b->prev != BLOCK_NONE)
        p->blocks[b->prev].next = b->next;
    else
        l->head = b->next;
    if (b->next != BLOCK_NONE)
        p->blocks[b->next].prev = b->prev;
    else
        l->tail = b->prev;
    l->n--;
    if (is_quarantined(p, b)) {
        l->n_quarantined--;
        l->by_step[b->step % BLOCK_POOL_MAX_DEPTH]--;
    }
}

struct block_pool *block_pool_new(uint32_t n_blocks)
{
    struct block_pool *p = mem_zalloc(sizeof *p);
    p->n_blocks = n_blocks;
    p->blocks = mem_try_array(n_blocks, sizeof *p->blocks);
    if (!p->blocks) {
        block_pool_free(p);
        return NULL;
    }
    block_pool_reset(p, 0);
    return p;
}

void block_pool_free(struct block_pool *p)
{
    if (!p)
        return;
    mem_free(p->blocks);
    mem_free(p);
}

void block_pool_reset(struct block_pool *p, uint64_t step_done)
{
    p->step_done = step_done;
    for (int i = 0; i < LIST_COUNT; i++)
        p->lists[i] = (struct list){.head = BLOCK_NONE, .tail = BLOCK_NONE};
    for (uint32_t id = 0; id < p->n_blocks; id++) {
        p->blocks[id] = (struct block){0};
        list_append(p, id, step_done);
    }
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
    uint32_t id = l->head;
    struct block *b = &p->blocks[id];
    *was_kept = b->keep;
    list_remove(p, b);
    b->owners = 1;
    b->keep = false;
    return id;
}

void block_pool_acquire(struct block_pool *p, uint32_t id)
{
    assert(id < p->n_blocks);
    struct block *b = &p->blocks[id];
    if (b->owners == 0)
        list_remove(p, b);
    b->owners++;
}

void block_pool_release(struct block_pool *p, const uint32_t *ids, uint32_t n, uint64_t step_sent)
{
    assert(step_sent <= p->step_done + BLOCK_POOL_MAX_DEPTH);
    while (n-- > 0) {
        struct block *b = &p->blocks[ids[n]];
        assert(ids[n] < p->n_blocks && b->owners > 0);
        if (--b->owners == 0)
            list_append(p, ids[n], step_sent);
    }
}

void block_pool_keep(struct block_pool *p, uint32_t id, bool keep)
{
    assert(id < p->n_blocks);
    p->blocks[id].keep = keep;
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
    return (uint32_t)p->blocks[id].owners;
}

bool block_pool_is_free(const struct block_pool *p, uint32_t id)
{
    assert(id < p->n_blocks);
    const struct block *b = &p->blocks[id];
    return b->owners == 0 && !is_quarantined(p, b);
}

static bool check_list(const struct block_pool *p, int i, struct error *err)
{
    const struct list *l = &p->lists[i];
    uint32_t n = 0, prev = BLOCK_NONE, by_step[BLOCK_POOL_MAX_DEPTH] = {0}, n_quarantined = 0;
    uint64_t step = 0;
    for (uint32_t id = l->head; id != BLOCK_NONE; id = p->blocks[id].next) {
        const struct block *b = &p->blocks[id];
        if (b->list != (uint64_t)i || b->prev != prev || b->owners || b->step < step ||
            ++n > p->n_blocks) {
            error_set(err, STATUS_INTERNAL, "block %u is wrong in list %d", id, i);
            return false;
        }
        step = b->step;
        prev = id;
        if (is_quarantined(p, b)) {
            n_quarantined++;
            by_step[step % BLOCK_POOL_MAX_DEPTH]++;
        }
    }
    bool ok = n == l->n && l->tail == prev && n_quarantined == l->n_quarantined;
    for (uint32_t k = 0; k < BLOCK_POOL_MAX_DEPTH; k++)
        ok = ok && by_step[k] == l->by_step[k];
    if (!ok)
        error_set(err, STATUS_INTERNAL, "list %d has %u blocks, %u in quarantine; counts %u, %u", i,
                  n, n_quarantined, l->n, l->n_quarantined);
    return ok;
}

bool block_pool_check(const struct block_pool *p, struct error *err)
{
    uint32_t n_owned = 0, n_listed = p->lists[LIST_EMPTY].n + p->lists[LIST_KEPT].n;
    if (!check_list(p, LIST_EMPTY, err) || !check_list(p, LIST_KEPT, err))
        return false;
    for (uint32_t id = 0; id < p->n_blocks; id++)
        n_owned += p->blocks[id].owners > 0;
    if (n_owned + n_listed == p->n_blocks)
        return true;
    error_set(err, STATUS_INTERNAL, "%u owned + %u listed of %u blocks", n_owned, n_listed,
              p->n_blocks);
    return false;
}
