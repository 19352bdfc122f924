#include "common/base/mem.h"

#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE_BYTES (64 << 10)

void mem_give_back_large(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, 4 * LARGE_BYTES);
}

static void *checked(void *p, size_t size)
{
    if (!p && size) {
        fprintf(stderr, "out of memory: %zu bytes\n", size);
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
    if (__builtin_mul_overflow(n, size, &total)) /* calloc checks too, but a sanitizer's aborts */
        return NULL;
    return calloc(n ? n : 1, size ? size : 1);
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
