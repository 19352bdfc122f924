#pragma once
/* Counts the allocations of a test program, its libraries included: malloc, calloc and realloc
 * are interposed. COUNTS_MALLOC is 0 under a sanitizer, which has its own malloc; n_mallocs then
 * stays 0. This header defines functions, so include it once in a program. */
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_MALLOC 0
#endif
#endif
#ifndef COUNTS_MALLOC
#define COUNTS_MALLOC 1
#endif

static unsigned long n_mallocs;

#if COUNTS_MALLOC
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
    n_mallocs++;
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    n_mallocs++;
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    n_mallocs++;
    return __libc_realloc(p, n);
}
#endif
