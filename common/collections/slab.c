#include "common/collections/slab.h"

#include <assert.h>

#include "common/base/mem.h"

/* AddressSanitizer reports a read of an object that was freed and not allocated again. gcc
 * announces the sanitizer with a macro, clang with a feature. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLAB_POISONS 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(SLAB_POISONS)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size)   ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)0)
#endif

enum { LINE_BYTES = 64 };

struct slab_region {
    struct slab_region *next;
    struct mem_table table;
    size_t n, n_used; /* number of objects; the objects from n_used on were never allocated */
};

void slab_init(struct slab *s, size_t size, size_t n_first)
{
    assert(size > 0 && n_first > 0);
    *s = (struct slab){.size = (size + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES,
                       .n_first = n_first};
}

void slab_fini(struct slab *s)
{
    for (struct slab_region *x = s->regions, *next; x; x = next) {
        next = x->next;
        ASAN_UNPOISON_MEMORY_REGION(x->table.at, x->n * s->size);
        mem_table_close(&x->table);
        mem_free(x);
    }
    s->regions = NULL;
    s->free = NULL;
}

static struct slab_region *add_region(struct slab *s)
{
    size_t n = s->n_first;
    for (const struct slab_region *x = s->regions; x; x = x->next)
        n += x->n;
    struct slab_region *fresh = mem_zalloc(sizeof *fresh);
    if (!mem_table_open(&fresh->table, n, s->size)) {
        mem_free(fresh);
        return NULL;
    }
    fresh->n = n;
    fresh->next = s->regions;
    return s->regions = fresh;
}

void *slab_try_alloc(struct slab *s)
{
    void *object = s->free;
    if (object) {
        ASAN_UNPOISON_MEMORY_REGION(object, s->size);
        s->free = *(void **)object;
        return object;
    }
    struct slab_region *x = s->regions;
    if (!x || x->n_used == x->n)
        x = add_region(s);
    return x ? (char *)x->table.at + x->n_used++ * s->size : NULL;
}

void slab_free(struct slab *s, void *owned_object)
{
    *(void **)owned_object = s->free;
    s->free = owned_object;
    ASAN_POISON_MEMORY_REGION(owned_object, s->size);
}
