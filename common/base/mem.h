#pragma once
/* Allocates host memory. The functions for small blocks abort with a message when there is no
 * memory, because their sizes are bounded by our own limits. Code that allocates a size chosen
 * by a peer or a model calls mem_try_* and returns STATUS_NO_MEMORY on failure. The functions
 * are thread-safe, as malloc is. */
#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

/* Makes malloc put every large block on pages of its own, so that memory returns to the system
 * after a burst of load. Otherwise glibc raises its threshold to the largest block ever freed.
 * main calls the function once. */
void mem_give_back_large(void);
void *mem_alloc(size_t size);
void *mem_zalloc(size_t size);
/* Returns `size` bytes that are not zeroed. `alignment` is a power of two. */
void *mem_aligned(size_t alignment, size_t size);
void *mem_realloc(void *owned_ptr, size_t size);
/* Returns n * size zeroed bytes. Aborts on overflow. */
void *mem_array(size_t n, size_t size);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
/* Returns n * size zeroed bytes. Returns NULL on overflow or without memory. */
void *mem_try_array(size_t n, size_t size);
void *mem_try_alloc(size_t size); /* the bytes are not zeroed */
/* Changes the size of an allocation. Returns NULL when there is no memory. `owned_ptr` is then
 * unchanged. */
void *mem_try_realloc(void *owned_ptr, size_t size);
void mem_free(void *owned_ptr); /* owned_ptr may be NULL */

/* `mem_table` is a large zeroed array that lives as long as its owner. It is aligned to a cache
 * line. A table that is large enough is put on huge pages, because random access to small pages
 * costs a page walk each time. */
struct mem_table {
    void *at;
    void *owned;
    size_t mapped_bytes; /* 0 = `owned` is from the heap */
};
/* Returns false when n * size overflows or there is no memory. Then *t is empty. */
bool mem_table_open(struct mem_table *t, size_t n, size_t size);
void mem_table_close(struct mem_table *t); /* the table may be empty */
