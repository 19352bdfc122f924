#pragma once
/* Compares plain numbers for qsort and bsearch, in ascending order. The functions are pure and
 * may run on any thread. */
#include <stdint.h>

static inline int order_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline int order_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}
