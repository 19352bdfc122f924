#include "head/block_pool.h"

#include <assert.h>

#include "common/base/mem.h"

enum place { PLACE_OWNED, PLACE_FREE, PLACE_QUARANTINE, PLACE_COUNT };

struct block {
    uint32_t owners, next, prev;
    uint8_t place;
    bool keep;
    uint64_t last_step; /* in quarantine: the last step that was sent while it was owned */
};

struct list {
    uint32_t head, tail, n;
};

struct block_pool {
    uint32_t n_blocks;
    uint64_t step_done;
    struct list lists[PLACE_COUNT]; /* OWNED is not used */
    struct block *blocks;
};

static void list_insert(struct block_pool *p, enum place place, uint32_t id, bool at_tail)
{
    struct list *l = &p->lists[place];
    struct block *b = &p->blocks[id];
    b->place = (uint8_t)place;
    b->prev = at_tail ? l->tail : BLOCK_NONE;
    b->next = at_tail ? BLOCK_NONE : l->head;
    if (b->prev != BLOCK_NONE)
        p->blocks[b->prev].next = id;
    else
        l->head = id;
    if (b->next != BLOCK_NONE)
        p->blocks[b->next].prev = id;
    else
        l->tail = id;
    l->n++;
}

static void list_remove(struct block_pool *p, uint32_t id)
{
    struct block *b = &p->blocks[id];
    struct list *l = &p->lists[b->place];
    if (b->prev != BLOCK_NONE)
        p->blocks[b->prev].next = b->next;
    else
        l->head = b->next;
    if (b->next != BLOCK_NONE)
        p->blocks[b->next].prev = b->prev;
    else
        l->tail = b->prev;
    l->n--;
    b->place = PLACE_OWNED;
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
    for (int i = 0; i < PLACE_COUNT; i++)
        p->lists[i] = (struct list){BLOCK_NONE, BLOCK_NONE, 0};
    for (uint32_t id = 0; id < p->n_blocks; id++) {
        p->blocks[id] = (struct block){0};
        list_insert(p, PLACE_FREE, id, true);
    }
}

uint32_t block_pool_alloc(struct block_pool *p)
{
    uint32_t id = p->lists[PLACE_FREE].head;
    if (id == BLOCK_NONE)
        return BLOCK_NONE;
    list_remove(p, id);
    p->blocks[id].owners = 1;
    return id;
}

void block_pool_acquire(struct block_pool *p, uint32_t id)
{
    assert(id < p->n_blocks);
    if (p->blocks[id].owners++ == 0)
        list_remove(p, id);
}

static void to_free_list(struct block_pool *p, uint32_t id)
{
    list_insert(p, PLACE_FREE, id, p->blocks[id].keep);
}

void block_pool_release(struct block_pool *p, uint32_t id, uint64_t step_sent, bool keep)
{
    assert(id < p->n_blocks && p->blocks[id].owners > 0);
    struct block *b = &p->blocks[id];
    if (--b->owners > 0)
        return;
    b->keep = keep;
    b->last_step = step_sent;
    if (step_sent > p->step_done)
        list_insert(p, PLACE_QUARANTINE, id, true); /* steps only grow: the list stays sorted */
    else
        to_free_list(p, id);
}

void block_pool_on_done(struct block_pool *p, uint64_t step)
{
    p->step_done = step;
    const struct list *q = &p->lists[PLACE_QUARANTINE];
    while (q->head != BLOCK_NONE && p->blocks[q->head].last_step <= step) {
        uint32_t id = q->head;
        list_remove(p, id);
        to_free_list(p, id);
    }
}

uint32_t block_pool_size(const struct block_pool *p)
{
    return p->n_blocks;
}

uint32_t block_pool_n_free(const struct block_pool *p)
{
    return p->lists[PLACE_FREE].n;
}

uint32_t block_pool_n_quarantined(const struct block_pool *p)
{
    return p->lists[PLACE_QUARANTINE].n;
}

uint32_t block_pool_owners(const struct block_pool *p, uint32_t id)
{
    assert(id < p->n_blocks);
    return p->blocks[id].owners;
}

bool block_pool_is_free(const struct block_pool *p, uint32_t id)
{
    assert(id < p->n_blocks);
    return p->blocks[id].place == PLACE_FREE;
}

static bool check_list(const struct block_pool *p, enum place place, struct error *err)
{
    const struct list *l = &p->lists[place];
    uint32_t n = 0, prev = BLOCK_NONE;
    uint64_t last_step = 0;
    for (uint32_t id = l->head; id != BLOCK_NONE; id = p->blocks[id].next) {
        const struct block *b = &p->blocks[id];
        bool in_order =
            place != PLACE_QUARANTINE || (b->last_step >= last_step && b->last_step > p->step_done);
        if (b->place != place || b->prev != prev || b->owners || !in_order || ++n > p->n_blocks) {
            error_set(err, STATUS_INTERNAL, "block %u is wrong in list %d", id, (int)place);
            return false;
        }
        last_step = b->last_step;
        prev = id;
    }
    if (n != l->n || l->tail != prev) {
        error_set(err, STATUS_INTERNAL, "list %d has %u blocks, counts %u", (int)place, n, l->n);
        return false;
    }
    return true;
}

bool block_pool_check(const struct block_pool *p, struct error *err)
{
    if (!check_list(p, PLACE_FREE, err) || !check_list(p, PLACE_QUARANTINE, err))
        return false;
    uint32_t n_owned = 0;
    for (uint32_t id = 0; id < p->n_blocks; id++)
        n_owned += p->blocks[id].place == PLACE_OWNED && p->blocks[id].owners > 0;
    if (n_owned + p->lists[PLACE_FREE].n + p->lists[PLACE_QUARANTINE].n != p->n_blocks) {
        error_set(err, STATUS_INTERNAL, "%u owned + %u free + %u in quarantine of %u blocks",
                  n_owned, p->lists[PLACE_FREE].n, p->lists[PLACE_QUARANTINE].n, p->n_blocks);
        return false;
    }
    return true;
}
