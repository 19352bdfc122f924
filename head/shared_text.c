#include "head/shared_text.h"

#include <sodium.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/mem.h"

struct shared_text {
    struct shared_texts *owner;
    struct shared_text *next; /* in its bucket */
    uint64_t hash, tenant;    /* the second: of who brought it */
    uint64_t n_refs;
    size_t len;
    char bytes[];
};

void shared_texts_init(struct shared_texts *t)
{
    *t = (struct shared_texts){0};
    randombytes_buf(&t->seed, sizeof t->seed);
}

static struct shared_text **find(struct shared_texts *t, struct str bytes, uint64_t hash)
{
    struct shared_text **at = &t->buckets[hash % SHARED_TEXT_BUCKETS];
    while (*at && ((*at)->hash != hash || (*at)->len != bytes.len ||
                   memcmp((*at)->bytes, bytes.ptr, bytes.len) != 0))
        at = &(*at)->next;
    return at;
}

static uint64_t bytes_of_tenant(const struct shared_texts *t, uint64_t tenant)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < SHARED_TEXT_BUCKETS; i++)
        for (const struct shared_text *x = t->buckets[i]; x; x = x->next)
            n += x->tenant == tenant ? x->len : 0;
    return n;
}

static bool has_room(const struct shared_texts *t, uint64_t tenant, size_t len)
{
    if (t->n_bytes + len <= SHARED_TEXTS_BYTES / 2)
        return true;
    return t->n_bytes + len <= SHARED_TEXTS_BYTES &&
           bytes_of_tenant(t, tenant) + len <= SHARED_TEXTS_TENANT_BYTES;
}

enum status shared_text_take(struct shared_texts *t, uint64_t tenant, struct str bytes, bool must,
                             struct shared_text **out, struct error *err)
{
    uint64_t hash = XXH3_64bits_withSeed(bytes.ptr, bytes.len, t->seed);
    struct shared_text **at = find(t, bytes, hash), *x = *at;
    *out = NULL;
    if (!x) {
        if (!must && !has_room(t, tenant, bytes.len))
            return error_set(err, STATUS_LIMIT,
                             "the cluster is overloaded: the grammars of requests that wait or run "
                             "leave no room for another one of %zu bytes",
                             bytes.len);
        x = mem_try_alloc(sizeof *x + bytes.len);
        if (!x)
            return error_set(err, STATUS_NO_MEMORY, "no memory for a grammar of %zu bytes",
                             bytes.len);
        *x = (struct shared_text){.owner = t, .hash = hash, .tenant = tenant, .len = bytes.len};
        memcpy(x->bytes, bytes.ptr, bytes.len);
        t->n_bytes += bytes.len;
        *at = x;
    }
    x->n_refs++;
    *out = x;
    return STATUS_OK;
}

void shared_text_release(struct shared_text *x)
{
    if (!x || --x->n_refs > 0)
        return;
    struct shared_text **at = &x->owner->buckets[x->hash % SHARED_TEXT_BUCKETS];
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    x->owner->n_bytes -= x->len;
    mem_free(x);
}

struct str shared_text_str(const struct shared_text *x)
{
    return (struct str){x->bytes, x->len};
}
