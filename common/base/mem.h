#pragma once
/* Small host allocations. Out of memory here aborts with a message: these are bounded by our own
 * limits. Anything sized by a peer or by a model goes through mem_try_* and returns
 * STATUS_NO_MEMORY instead. Thread-safe as malloc is. */
#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

/* Main calls this: large blocks get pages of their own for good, so that a burst's memory goes back
 * to the system (glibc would raise its threshold to the largest block ever freed). */
void mem_give_back_large(void);
void *mem_alloc(size_t size);
void *mem_zalloc(size_t size);
void *mem_aligned(size_t alignment, size_t size); /* a power of two; not zeroed */
void *mem_realloc(void *owned_ptr, size_t size);
/* n * size bytes, zeroed; aborts on overflow. */
void *mem_array(size_t n, size_t size);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
/* NULL when n * size overflows or there is no memory. */
void *mem_try_array(size_t n, size_t size);
void *mem_try_alloc(size_t size); /* not zeroed */
/* NULL when there is no memory: owned_ptr is as it was. */
void *mem_try_realloc(void *owned_ptr, size_t size);
void mem_free(void *owned_ptr); /* NULL is fine */

/* A large array for the life of its owner, zeroed, at a cache line; on huge pages when it is large
 * enough for them: what is touched at random all over costs a page walk otherwise. */
struct mem_table {
    void *at;
    void *owned;
    size_t mapped_bytes; /* 0: owned is of the heap */
};
/* False when n * size overflows or there is no memory; then *t is empty. */
bool mem_table_open(struct mem_table *t, size_t n, size_t size);
void mem_table_close(struct mem_table *t); /* empty is fine */
