#pragma once
/* Objects of one size, close together and each at a cache line. A walk over thousands of them
 * touches few pages; from the heap, each object could cost a page walk of its own. Memory comes
 * in regions, each twice as large as the one before, and is freed all at once by slab_fini. One
 * thread. */
#include <stddef.h>

struct slab_region;
struct slab {
    size_t size, n_first;
    struct slab_region *regions; /* newest first */
    void *free;                  /* free list: each object holds the address of the next */
};

/* Allocates nothing yet. The first region will hold `n_first` objects. */
void slab_init(struct slab *s, size_t size, size_t n_first);
void slab_fini(struct slab *s);       /* frees all objects, also those still in use */
void *slab_try_alloc(struct slab *s); /* not zeroed; NULL = no memory */
void slab_free(struct slab *s, void *owned_object);
