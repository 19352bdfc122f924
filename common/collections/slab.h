#pragma once
/* Allocates objects of one size, close together and each at a cache line. A walk over thousands
 * of such objects touches few pages. From the heap, each object could cost a page walk of its
 * own. Memory is allocated in regions, each twice as large as the one before. slab_fini frees
 * all of it at once. Only one thread at a time may use a slab. */
#include <stddef.h>

struct slab_region;
struct slab {
    size_t size, n_first;
    struct slab_region *regions; /* regions, the newest first */
    void *free;                  /* free list: each object holds the address of the next */
};

/* Sets up the slab and allocates nothing yet. The first region will hold `n_first` objects. */
void slab_init(struct slab *s, size_t size, size_t n_first);
void slab_fini(struct slab *s); /* frees all objects, also those still in use */
/* Returns an object that is not zeroed, or NULL when there is no memory. */
void *slab_try_alloc(struct slab *s);
void slab_free(struct slab *s, void *owned_object);
