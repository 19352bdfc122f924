#include "common/collections/room.h"

#include <assert.h>

#include "common/base/mem.h"

struct room_account { /* an account exists while its tenant holds bytes */
    /* the node must be first, because a pointer to it is used as a pointer to the account */
    struct key_node node;
    uint64_t held;
};

void room_init(struct room *r, uint64_t total)
{
    *r = (struct room){.total = total};
}

void room_fini(struct room *r)
{
    assert(r->used == 0);
    key_table_fini(&r->accounts);
    *r = (struct room){0};
}

static struct room_account *find(const struct room *r, uint64_t tenant)
{
    return (struct room_account *)key_table_find(&r->accounts, tenant);
}

static struct room_account *find_or_add(struct room *r, uint64_t tenant)
{
    struct room_account *a = find(r, tenant);
    if (a)
        return a;
    a = mem_zalloc(sizeof *a);
    a->node.key = tenant;
    key_table_add(&r->accounts, &a->node);
    return a;
}

static void drop(struct room *r, struct room_account *gone)
{
    key_table_remove(&r->accounts, &gone->node);
    mem_free(gone);
}

uint64_t room_left(const struct room *r, uint64_t tenant)
{
    const struct room_account *a = find(r, tenant);
    const uint64_t unused = r->total > r->used ? r->total - r->used : 0, held = a ? a->held : 0;
    return unused > held ? (unused - held) / 2 : 0; /* new bytes also reduce the unused part */
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
