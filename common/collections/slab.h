#pragma once
/* Objects of one size, close together and each at a cache line: who walks over thousands of them
 * touches few pages, where a heap would put each beside whatever was allocated with it, and every
 * one would cost a page walk. Memory comes in regions, each twice as large as the one before, and
 * goes back all at once: what was needed once stays. One thread. */
#include <stddef.h>

struct slab_region;
struct slab {
    size_t size, n_first;
    struct slab_region *regions; /* the newest first */
    void *free;                  /* given back: each holds the address of the next */
};

/* Allocates nothing yet; n_first objects will be the first region. */
void slab_init(struct slab *s, size_t size, size_t n_first);
void slab_fini(struct slab *s);       /* objects that were not given back are void */
void *slab_try_alloc(struct slab *s); /* not zeroed; NULL: no memory */
void slab_free(struct slab *s, void *owned_object);
