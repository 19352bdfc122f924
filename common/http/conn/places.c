#include "common/http/conn/places.h"

#include "common/base/mem.h"
#include "common/http/conn/address.h"
#include "common/http/conn/state.h"

enum { NUMBERS_MIN = 64 };

void places_init(struct places *p)
{
    *p = (struct places){0};
}

void places_fini(struct places *p)
{
    key_table_fini(&p->peers);
    mem_free(p->by_n);
    *p = (struct places){0};
}

struct http_peer *places_find(const struct places *p, uint64_t address)
{
    return (struct http_peer *)key_table_find(&p->peers, address);
}

static struct http_peer *find_or_add(struct places *p, uint64_t address)
{
    struct http_peer *peer = places_find(p, address);
    if (peer)
        return peer;
    peer = mem_zalloc(sizeof *peer);
    peer->node.key = address;
    key_table_add(&p->peers, &peer->node);
    return peer;
}

static void drop(struct places *p, struct http_peer *gone)
{
    key_table_remove(&p->peers, &gone->node);
    mem_free(gone);
}

/* ---- peers by number of connections ---- */

static void unlink_n(struct places *p, struct http_peer *peer)
{
    struct peers *list = &p->by_n[peer->n];
    *(peer->prev ? &peer->prev->next : &list->first) = peer->next;
    *(peer->next ? &peer->next->prev : &list->last) = peer->prev;
    peer->prev = peer->next = NULL;
}

static void link_n(struct places *p, struct http_peer *peer)
{
    struct peers *list = &p->by_n[peer->n];
    peer->prev = list->last;
    *(list->last ? &list->last->next : &list->first) = peer;
    list->last = peer;
}

static void set_n(struct places *p, struct http_peer *peer, uint32_t n)
{
    if (n >= p->cap_n) {
        const uint32_t cap = p->cap_n ? p->cap_n * 2 : NUMBERS_MIN;
        p->by_n = mem_realloc(p->by_n, cap * sizeof *p->by_n);
        for (uint32_t i = p->cap_n; i < cap; i++)
            p->by_n[i] = (struct peers){0};
        p->cap_n = cap;
    }
    if (peer->n > 0)
        unlink_n(p, peer);
    peer->n = n;
    if (n > 0)
        link_n(p, peer);
    if (n > p->most)
        p->most = n;
    while (p->most > 0 && !p->by_n[p->most].first)
        p->most--; /* the loop makes at most one round, since n changes by one */
}

/* ---- connections ---- */

static void append(struct places *p, struct http_peer *peer, struct conn *c)
{
    c->place = (struct conn_place){
        .in = p, .peer = peer, .older = peer->newest, .since_ms = uv_now(c->deadline.loop)};
    *(peer->newest ? &peer->newest->place.newer : &peer->oldest) = c;
    peer->newest = c;
}

static void take_out(struct conn *c)
{
    struct conn_place *at = &c->place;
    *(at->older ? &at->older->place.newer : &at->peer->oldest) = at->newer;
    *(at->newer ? &at->newer->place.older : &at->peer->newest) = at->older;
    *at = (struct conn_place){0};
}

static void enter(struct places *p, struct conn *c)
{
    struct http_peer *peer = find_or_add(p, conn_address(c));
    append(p, peer, c);
    set_n(p, peer, peer->n + 1);
}

void places_wait(struct conn *c)
{
    places_stay(c);
    enter(&c->server->waiting, c);
}

void places_hold(struct conn *c)
{
    struct places *p = &c->server->held;
    struct http_peer *peer = c->place.peer;
    if (c->place.in == p) {
        take_out(c);
        append(p, peer, c);
        return;
    }
    places_stay(c);
    enter(p, c);
}

void places_stay(struct conn *c)
{
    struct places *p = c->place.in;
    struct http_peer *peer = c->place.peer;
    if (!peer)
        return;
    take_out(c);
    set_n(p, peer, peer->n - 1);
    if (peer->n == 0)
        drop(p, peer);
}
