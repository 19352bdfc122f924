#include "worker/link/held_adapters.h"

#include <string.h>

#include "common/base/mem.h"
#include "proto/limits.h"

static struct str keep(struct str s)
{
    char *copy = mem_zalloc(s.len + 1);
    if (s.len > 0)
        memcpy(copy, s.ptr, s.len);
    return (struct str){copy, s.len};
}

static void forget(struct held_adapters *h, uint32_t i)
{
    mem_free((void *)(uintptr_t)h->all[i].name.ptr);
    mem_free((void *)(uintptr_t)h->all[i].path.ptr);
    h->all[i] = h->all[--h->n];
}

void held_adapters_set(struct held_adapters *h, const struct msg_adapter *a)
{
    uint32_t i = 0;
    while (i < h->n && h->all[i].id != a->id)
        i++;
    if (i < h->n && !a->on)
        forget(h, i);
    if (i < h->n || !a->on || h->n == PROTO_MAX_ADAPTERS)
        return;
    if (!h->all)
        h->all = mem_array(PROTO_MAX_ADAPTERS, sizeof *h->all);
    h->all[h->n++] = (struct msg_adapter){.id = a->id,
                                          .on = true,
                                          .name = keep(a->name),
                                          .path = keep(a->path),
                                          .identity = a->identity};
}

void held_adapters_fini(struct held_adapters *h)
{
    while (h->n > 0)
        forget(h, h->n - 1);
    mem_free(h->all);
    *h = (struct held_adapters){0};
}
