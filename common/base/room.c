#include "common/base/room.h"

#include <assert.h>

#include "common/base/mem.h"
#include "common/base/mix.h"

enum { BUCKETS_MIN = 64 };

struct room_account { /* there is one while its tenant holds something */
    uint64_t tenant, held;
    struct room_account *next; /* in the bucket */
};

void room_init(struct room *r, uint64_t total)
{
    *r = (struct room){.total = total};
}

void room_fini(struct room *r)
{
    assert(r->n_accounts == 0 && r->used == 0);
    mem_free(r->buckets);
    *r = (struct room){0};
}

/* Tenants' numbers may be alike in their low bits. */
static struct room_account **bucket_of(const struct room *r, uint64_t tenant)
{
    return &r->buckets[mix_bits(tenant) & (r->n_buckets - 1)];
}

static struct room_account *find(const struct room *r, uint64_t tenant)
{
    struct room_account *a = r->n_buckets ? *bucket_of(r, tenant) : NULL;
    while (a && a->tenant != tenant)
        a = a->next;
    return a;
}

static void push(struct room *r, struct room_account *a)
{
    struct room_account **bucket = bucket_of(r, a->tenant);
    a->next = *bucket;
    *bucket = a;
}

static void grow(struct room *r)
{
    struct room_account **old = r->buckets;
    const uint32_t n_old = r->n_buckets;
    r->n_buckets = n_old ? n_old * 2 : BUCKETS_MIN;
    r->buckets = mem_zalloc(r->n_buckets * sizeof(struct room_account *));
    for (uint32_t i = 0; i < n_old; i++)
        for (struct room_account *a = old[i], *next; a; a = next) {
            next = a->next;
            push(r, a);
        }
    mem_free(old);
}

static struct room_account *find_or_add(struct room *r, uint64_t tenant)
{
    struct room_account *a = find(r, tenant);
    if (a)
        return a;
    if (r->n_accounts == r->n_buckets)
        grow(r);
    a = mem_zalloc(sizeof *a);
    a->tenant = tenant;
    push(r, a);
    r->n_accounts++;
    return a;
}

static void drop(struct room *r, struct room_account *gone)
{
    struct room_account **at = bucket_of(r, gone->tenant);
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    r->n_accounts--;
    mem_free(gone);
}

uint64_t room_left(const struct room *r, uint64_t tenant)
{
    const struct room_account *a = find(r, tenant);
    const uint64_t unused = r->total > r->used ? r->total - r->used : 0, held = a ? a->held : 0;
    return unused > held ? (unused - held) / 2 : 0; /* what it adds is free no more */
}

bool room_has(const struct room *r, uint64_t tenant, uint64_t more)
{
    return more <= room_left(r, tenant);
}

void room_set(struct room *r, struct room_charge *c, uint64_t tenant, uint64_t bytes)
{
    if (bytes == c->bytes)
        return;
    if (!c->account)
        c->account = find_or_add(r, tenant);
    c->account->held += bytes - c->bytes;
    r->used += bytes - c->bytes;
    c->bytes = bytes;
    if (c->account->held == 0)
        drop(r, c->account);
    if (bytes == 0)
        c->account = NULL;
}
