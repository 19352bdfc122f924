#include "head/request/shared_text.h"

#include <sodium.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/mem.h"

struct shared_text_tenant {
    uint64_t tenant, n_bytes; /* bytes of the texts that this tenant added first; never 0 */
    struct shared_text_tenant *next;
};

struct shared_text {
    struct shared_texts *owner;
    struct shared_text *next; /* next text in the same bucket */
    uint64_t hash, tenant;    /* tenant: charged for the text, as owner of the first reference */
    uint64_t n_refs;
    struct shared_text_key key;
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

/* ---- tenants ---- */

static struct shared_text_tenant **find_tenant(struct shared_texts *t, uint64_t tenant)
{
    struct shared_text_tenant **at = &t->tenants[tenant % SHARED_TEXT_TENANTS];
    while (*at && (*at)->tenant != tenant)
        at = &(*at)->next;
    return at;
}

static void count_more(struct shared_texts *t, uint64_t tenant, size_t len)
{
    struct shared_text_tenant **at = find_tenant(t, tenant);
    if (len == 0)
        return;
    if (!*at) {
        *at = mem_zalloc(sizeof **at);
        (*at)->tenant = tenant;
    }
    (*at)->n_bytes += len;
    t->n_bytes += len;
}

static void count_less(struct shared_texts *t, uint64_t tenant, size_t len)
{
    struct shared_text_tenant **at = find_tenant(t, tenant), *x = *at;
    t->n_bytes -= len;
    if (!x || (x->n_bytes -= len) > 0)
        return;
    *at = x->next;
    mem_free(x);
}

static uint64_t bytes_of_tenant(struct shared_texts *t, uint64_t tenant)
{
    const struct shared_text_tenant *x = *find_tenant(t, tenant);
    return x ? x->n_bytes : 0;
}

/* ---- texts ---- */

static bool has_room(struct shared_texts *t, uint64_t tenant, size_t len)
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
                             "the cluster is overloaded: the grammars of open requests leave no "
                             "memory for another one of %zu bytes. Try again later",
                             bytes.len);
        x = mem_try_alloc(sizeof *x + bytes.len);
        if (!x)
            return error_set(err, STATUS_NO_MEMORY,
                             "the head has no memory for a grammar of %zu bytes. Try again later",
                             bytes.len);
        *x = (struct shared_text){.owner = t, .hash = hash, .tenant = tenant, .len = bytes.len};
        memcpy(x->bytes, bytes.ptr, bytes.len);
        count_more(t, tenant, bytes.len);
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
    count_less(x->owner, x->tenant, x->len);
    mem_free(x);
}

struct str shared_text_str(const struct shared_text *x)
{
    return (struct str){x->bytes, x->len};
}

struct shared_text_key *shared_text_key(struct shared_text *x)
{
    return &x->key;
}
