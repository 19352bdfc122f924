#include "common/net/http_places.h"

#include <sys/ioctl.h>

#include "common/base/mem.h"
#include "common/net/http_internal.h"

enum { NUMBERS_MIN = 64, CONNS_LOOKED_AT = 16, PEERS_LOOKED_AT = 4, HALF_MS = 1000 };

struct peer {             /* there is one while a connection of the address waits */
    struct key_node node; /* by its address; first: a peer is its node */
    uint32_t n;
    struct conn *oldest, *newest;
    struct peer *prev, *next; /* with the same n */
};

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

/* ---- addresses ---- */

static struct peer *find_or_add(struct places *p, uint64_t address)
{
    struct peer *peer = (struct peer *)key_table_find(&p->peers, address);
    if (peer)
        return peer;
    peer = mem_zalloc(sizeof *peer);
    peer->node.key = address;
    key_table_add(&p->peers, &peer->node);
    return peer;
}

static void drop(struct places *p, struct peer *gone)
{
    key_table_remove(&p->peers, &gone->node);
    mem_free(gone);
}

/* ---- numbers ---- */

static void unlink_n(struct places *p, struct peer *peer)
{
    struct peers *list = &p->by_n[peer->n];
    *(peer->prev ? &peer->prev->next : &list->first) = peer->next;
    *(peer->next ? &peer->next->prev : &list->last) = peer->prev;
    peer->prev = peer->next = NULL;
}

static void link_n(struct places *p, struct peer *peer)
{
    struct peers *list = &p->by_n[peer->n];
    peer->prev = list->last;
    *(list->last ? &list->last->next : &list->first) = peer;
    list->last = peer;
}

static void set_n(struct places *p, struct peer *peer, uint32_t n)
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
        p->most--; /* by one at a time: n changes by one */
}

/* ---- connections ---- */

void places_wait(struct conn *c)
{
    places_stay(c);
    struct places *p = &c->server->places;
    struct peer *peer = find_or_add(p, conn_address(c));
    c->place =
        (struct place){.peer = peer, .older = peer->newest, .since_ms = uv_now(c->deadline.loop)};
    *(peer->newest ? &peer->newest->place.newer : &peer->oldest) = c;
    peer->newest = c;
    set_n(p, peer, peer->n + 1);
}

void places_stay(struct conn *c)
{
    struct places *p = &c->server->places;
    struct place *at = &c->place;
    struct peer *peer = at->peer;
    if (!peer)
        return;
    *(at->older ? &at->older->place.newer : &peer->oldest) = at->newer;
    *(at->newer ? &at->newer->place.older : &peer->newest) = at->older;
    *at = (struct place){0};
    set_n(p, peer, peer->n - 1);
    if (peer->n == 0)
        drop(p, peer);
}

/* ---- making place ---- */

/* Whether bytes have come that nobody has read: a request may begin or be whole with them. */
static bool has_unread(const struct conn *c)
{
    uv_os_fd_t fd;
    int n = 0;
    return uv_fileno(&c->io.handle, &fd) == 0 && ioctl(fd, FIONREAD, &n) == 0 && n > 0;
}

/* The one that goes, of an address; NULL: none. at_once: half a head has no second to become whole.
 */
static struct conn *pick(const struct peer *peer, const struct conn *spared, bool at_once)
{
    struct conn *half = NULL, *c = peer->oldest;
    for (int i = 0; c && i < CONNS_LOOKED_AT; i++, c = c->place.newer) {
        const bool lingers = c->state == CONN_LINGERING;
        if (c == spared || (!lingers && has_unread(c)))
            continue;
        if (conn_is_idle(c))
            return c;
        const uint64_t waits_ms = uv_now(c->deadline.loop) - c->place.since_ms;
        if (!half && (at_once || waits_ms >= HALF_MS))
            half = c;
    }
    return half;
}

bool places_make(struct http_server *s, struct conn *spared)
{
    const struct places *p = &s->places;
    const uint32_t own = spared && spared->place.peer ? spared->place.peer->n : UINT32_MAX;
    int looked_at = 0;
    for (uint32_t n = p->most; n > 0; n--)
        for (struct peer *peer = p->by_n[n].first; peer; peer = peer->next) {
            struct conn *c = pick(peer, spared, n > own);
            if (c) {
                conn_abort(c);
                return true;
            }
            if (++looked_at == PEERS_LOOKED_AT)
                return false;
        }
    return false;
}
