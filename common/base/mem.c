#include "common/base/mem.h"

#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE_BYTES     (64 << 10)
#define LINE_BYTES      64u
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

void mem_give_back_large(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, 4 * LARGE_BYTES);
}

static void *checked(void *p, size_t size)
{
    if (!p && size) {
        fprintf(stderr, "out of memory: the process could not get %zu more bytes\n", size);
        abort();
    }
    return p;
}

void *mem_alloc(size_t size)
{
    return checked(malloc(size ? size : 1), size);
}

void *mem_zalloc(size_t size)
{
    return checked(calloc(1, size ? size : 1), size);
}

void *mem_aligned(size_t alignment, size_t size)
{
    return checked(aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment), size);
}

void *mem_realloc(void *owned_ptr, size_t size)
{
    return checked(realloc(owned_ptr, size ? size : 1), size);
}

void *mem_array(size_t n, size_t size)
{
    return checked(mem_try_array(n, size), SIZE_MAX);
}

void *mem_try_array(size_t n, size_t size)
{
    size_t total;
    /* calloc checks for overflow too, but a sanitizer's calloc aborts */
    if (__builtin_mul_overflow(n, size, &total))
        return NULL;
    return calloc(n ? n : 1, size ? size : 1);
}

void *mem_try_alloc(size_t size)
{
    return malloc(size ? size : 1);
}

void *mem_try_realloc(void *owned_ptr, size_t size)
{
    return realloc(owned_ptr, size ? size : 1);
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

char *mem_strndup(const char *s, size_t n)
{
    char *p = mem_alloc(n + 1);
    memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

void mem_free(void *owned_ptr)
{
    free(owned_ptr);
}

static void *align_up(void *p, size_t to)
{
    uintptr_t at = (uintptr_t)p + to - 1;
    return (void *)(at - at % to);
}

static bool map_table(struct mem_table *t, size_t n_bytes)
{
    if (__builtin_add_overflow(n_bytes, HUGE_PAGE_BYTES, &t->mapped_bytes))
        return false;
    t->owned =
        mmap(NULL, t->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (t->owned == MAP_FAILED)
        return false;
    t->at = align_up(t->owned, HUGE_PAGE_BYTES);
    /* the call is only advice, and its failure is ignored, because small pages work too */
    (void)madvise(t->at, n_bytes, MADV_HUGEPAGE);
    return true;
}

bool mem_table_open(struct mem_table *t, size_t n, size_t size)
{
    size_t n_bytes;
    *t = (struct mem_table){0};
    if (__builtin_mul_overflow(n, size, &n_bytes) || n_bytes > SIZE_MAX - LINE_BYTES)
        return false;
    if (n_bytes >= 2 * HUGE_PAGE_BYTES) {
        if (map_table(t, n_bytes))
            return true;
        *t = (struct mem_table){0};
        return false;
    }
    t->owned = calloc(1, n_bytes + LINE_BYTES);
    t->at = t->owned ? align_up(t->owned, LINE_BYTES) : NULL;
    return t->owned != NULL;
}

void mem_table_close(struct mem_table *t)
{
    if (t->mapped_bytes)
        (void)munmap(t->owned, t->mapped_bytes);
    else
        free(t->owned);
    *t = (struct mem_table){0};
}
