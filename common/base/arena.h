#pragma once
/* Bump allocator for the three lifetimes: process, request, step. Reset keeps the memory, so a step
 * arena stops calling malloc once it has seen its largest step. limit_bytes bounds what a hostile
 * message can make us hold: at the limit arena_try_alloc returns NULL. Not thread-safe. */
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct arena_chunk;
struct arena {
    struct arena_chunk *first, *current;
    size_t used_bytes, limit_bytes; /* limit 0: none */
};

void arena_init(struct arena *a, size_t limit_bytes);
void arena_fini(struct arena *a);
/* An empty arena gets one chunk for so many bytes, which will be asked for in all. False: no
 * memory. */
bool arena_reserve(struct arena *a, size_t n_bytes);
void arena_reset(struct arena *a);
/* Bytes that it holds, used or not. */
size_t arena_held(const struct arena *a);
/* The same, and gives the memory back when it is more than keep_bytes. */
void arena_trim(struct arena *a, size_t keep_bytes);
/* 16-byte aligned, not zeroed; NULL at the limit. */
void *arena_try_alloc(struct arena *a, size_t size);
/* n * size, zeroed; NULL on overflow or at the limit. */
void *arena_try_array(struct arena *a, size_t n, size_t size);

/* The least multiple of `to` that is not below n: where the next piece of a buffer may begin. */
static inline uint64_t align_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}
