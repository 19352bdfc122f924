#include "common/base/arena.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "common/base/mem.h"

enum { ARENA_MIN_CHUNK = 16 * 1024 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size;
    _Alignas(16) char bytes[];
};

void arena_init(struct arena *a, size_t limit_bytes)
{
    *a = (struct arena){.limit_bytes = limit_bytes};
}

void arena_fini(struct arena *a)
{
    for (struct arena_chunk *c = a->first, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    *a = (struct arena){.limit_bytes = a->limit_bytes};
}

void arena_reset(struct arena *a)
{
    for (struct arena_chunk *c = a->first; c; c = c->next)
        c->used = 0;
    a->current = a->first;
    a->used_bytes = 0;
}

size_t arena_held(const struct arena *a)
{
    size_t held = 0;
    for (const struct arena_chunk *c = a->first; c; c = c->next)
        held += c->size;
    return held;
}

void arena_trim(struct arena *a, size_t keep_bytes)
{
    if (arena_held(a) > keep_bytes)
        arena_fini(a);
    else
        arena_reset(a);
}

/* Appends a chunk to the arena. The chunk is not zeroed: a request's arena is larger than a
 * CPU's cache, and most of it is written much later. */
static struct arena_chunk *add_chunk(struct arena *a, struct arena_chunk *after, size_t size)
{
    struct arena_chunk *fresh = size < SIZE_MAX / 4 ? mem_try_alloc(sizeof *fresh + size) : NULL;
    if (!fresh)
        return NULL;
    *fresh = (struct arena_chunk){.size = size};
    *(after ? &after->next : &a->first) = fresh;
    return a->current = fresh;
}

static struct arena_chunk *chunk_with_room(struct arena *a, size_t size)
{
    struct arena_chunk *c = a->current;
    while (c && c->size - c->used < size && c->next)
        c = c->next;
    if (c && c->size - c->used >= size)
        return a->current = c;
    size_t want = c ? c->size * 2 : ARENA_MIN_CHUNK;
    if (want < size)
        want = size;
    return add_chunk(a, c, want);
}

bool arena_reserve(struct arena *a, size_t n_bytes)
{
    assert(!a->first);
    return add_chunk(a, NULL, n_bytes) != NULL;
}

void *arena_try_alloc(struct arena *a, size_t size)
{
    if (size > SIZE_MAX / 4)
        return NULL;
    size = (size + 15) & ~(size_t)15;
    if (a->limit_bytes && size > a->limit_bytes - a->used_bytes)
        return NULL;
    struct arena_chunk *c = chunk_with_room(a, size);
    if (!c)
        return NULL;
    void *p = c->bytes + c->used;
    c->used += size;
    a->used_bytes += size;
    return p;
}

void *arena_try_array(struct arena *a, size_t n, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(n, size, &total))
        return NULL;
    void *p = arena_try_alloc(a, total);
    if (p)
        memset(p, 0, total);
    return p;
}
