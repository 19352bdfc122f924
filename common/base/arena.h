#pragma once
/* `struct arena` is a bump allocator for the three lifetimes: process, request, step. A reset
 * keeps the memory, so a step's arena stops calling malloc once it has served its largest step.
 * `limit_bytes` bounds the memory that a hostile message can make us allocate: at the limit
 * arena_try_alloc returns NULL. Only one thread at a time may use an arena. */
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct arena_chunk;
struct arena {
    struct arena_chunk *first, *current;
    size_t used_bytes, limit_bytes; /* limit_bytes 0 = no limit */
};

void arena_init(struct arena *a, size_t limit_bytes);
void arena_fini(struct arena *a);
/* Gives an empty arena one chunk of `n_bytes`, enough for all later allocations together.
 * Returns false when there is no memory. */
bool arena_reserve(struct arena *a, size_t n_bytes);
void arena_reset(struct arena *a);
/* Returns the number of bytes that the arena owns, used or not. */
size_t arena_held(const struct arena *a);
/* Resets the arena, and frees its memory when the arena owns more than `keep_bytes`. */
void arena_trim(struct arena *a, size_t keep_bytes);
/* Returns `size` bytes of the arena, 16-byte aligned and not zeroed. Returns NULL at the limit. */
void *arena_try_alloc(struct arena *a, size_t size);
/* Returns n * size zeroed bytes of the arena. Returns NULL on overflow or at the limit. */
void *arena_try_array(struct arena *a, size_t n, size_t size);

/* Rounds `n` up to a multiple of `to`. The result is the next place where a part of a buffer may
 * begin. */
static inline uint64_t align_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}
