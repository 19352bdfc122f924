#include "tests/sim/vllm_blocks.h"

#include <assert.h>

#include "common/base/mem.h"

#define NONE UINT32_MAX

struct block {
    uint32_t n_owners;
    bool entered;
    uint64_t hash;
    uint32_t prev, next; /* links of the free list, by age; entry `n` is the list's head */
    uint32_t same;       /* next entry of the same bucket */
};

struct vllm_blocks {
    struct block *blocks; /* array of n + 1 blocks */
    uint32_t n, n_free, n_buckets;
    uint32_t *buckets;
};

struct vllm_blocks *vllm_blocks_new(uint32_t n_blocks)
{
    struct vllm_blocks *b = mem_zalloc(sizeof *b);
    b->n = b->n_free = n_blocks;
    b->blocks = mem_array((size_t)n_blocks + 1, sizeof *b->blocks);
    for (uint32_t i = 0; i <= n_blocks; i++) {
        b->blocks[i].prev = i == 0 ? n_blocks : i - 1;
        b->blocks[i].next = i == n_blocks ? 0 : i + 1;
    }
    for (b->n_buckets = 64; b->n_buckets < n_blocks; b->n_buckets *= 2)
        ;
    b->buckets = mem_array(b->n_buckets, sizeof *b->buckets);
    for (uint32_t i = 0; i < b->n_buckets; i++)
        b->buckets[i] = NONE;
    return b;
}

void vllm_blocks_free(struct vllm_blocks *b)
{
    if (!b)
        return;
    mem_free(b->blocks);
    mem_free(b->buckets);
    mem_free(b);
}

uint32_t vllm_blocks_n_free(const struct vllm_blocks *b)
{
    return b->n_free;
}

static uint32_t *bucket(const struct vllm_blocks *b, uint64_t hash)
{
    return &b->buckets[hash & (b->n_buckets - 1)];
}

uint32_t vllm_blocks_find(const struct vllm_blocks *b, uint64_t hash)
{
    uint32_t id = *bucket(b, hash);
    while (id != NONE && b->blocks[id].hash != hash)
        id = b->blocks[id].same;
    return id;
}

bool vllm_blocks_is_free(const struct vllm_blocks *b, uint32_t id)
{
    return b->blocks[id].n_owners == 0;
}

void vllm_blocks_take(struct vllm_blocks *b, uint32_t id)
{
    struct block *x = &b->blocks[id];
    if (x->n_owners++ > 0)
        return;
    b->blocks[x->prev].next = x->next;
    b->blocks[x->next].prev = x->prev;
    b->n_free--;
}

static void leave_cache(struct vllm_blocks *b, uint32_t id)
{
    struct block *x = &b->blocks[id];
    uint32_t *at = bucket(b, x->hash);
    while (*at != id)
        at = &b->blocks[*at].same;
    *at = x->same;
    x->entered = false;
}

uint32_t vllm_blocks_alloc(struct vllm_blocks *b)
{
    uint32_t id = b->blocks[b->n].next; /* the oldest free block */
    assert(id != b->n);
    vllm_blocks_take(b, id);
    if (b->blocks[id].entered)
        leave_cache(b, id);
    return id;
}

void vllm_blocks_enter(struct vllm_blocks *b, uint32_t id, uint64_t hash)
{
    struct block *x = &b->blocks[id];
    if (x->entered)
        return;
    uint32_t *first = bucket(b, hash);
    x->entered = true;
    x->hash = hash;
    x->same = *first;
    *first = id;
}

void vllm_blocks_release(struct vllm_blocks *b, const uint32_t *ids, uint32_t n)
{
    while (n > 0) {
        uint32_t id = ids[--n];
        struct block *x = &b->blocks[id], *head = &b->blocks[b->n];
        assert(x->n_owners > 0);
        if (--x->n_owners > 0)
            continue;
        x->prev = head->prev;
        x->next = b->n;
        b->blocks[head->prev].next = id;
        head->prev = id;
        b->n_free++;
    }
}
