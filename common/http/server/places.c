#include "common/http/server/places.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/base/mem.h"
#include "common/collections/mix.h"
#include "common/http/server/state.h"

enum { NUMBERS_MIN = 64, CONNS_LOOKED_AT = 16, PEERS_LOOKED_AT = 4, HELD_LOOKED_AT = 64 };
enum { HALF_MS = 1000, STILL_MS = 1000, OWN_STILL_MS = 5000 };

struct peer {             /* there is one while a connection of the address is in its places */
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

/* Addresses that a client may choose differ in some bits alone, often the upper ones: each bit of
 * the number is to depend on all of them, and on the seed. */
uint64_t places_address(const struct sockaddr_storage *a, uint64_t seed)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
    uint64_t bits = 0;
    if (a->ss_family == AF_INET)
        bits = ((const struct sockaddr_in *)a)->sin_addr.s_addr;
    else if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        memcpy(&bits, &v6->sin6_addr.s6_addr[12], 4);
    else
        memcpy(&bits, v6->sin6_addr.s6_addr, sizeof bits);
    return mix_bits(bits ^ seed) | 1;
}

static struct peer *find(const struct places *p, uint64_t address)
{
    return (struct peer *)key_table_find(&p->peers, address);
}

static struct peer *find_or_add(struct places *p, uint64_t address)
{
    struct peer *peer = find(p, address);
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

static void append(struct places *p, struct peer *peer, struct conn *c)
{
    c->place = (struct place){
        .in = p, .peer = peer, .older = peer->newest, .since_ms = uv_now(c->deadline.loop)};
    *(peer->newest ? &peer->newest->place.newer : &peer->oldest) = c;
    peer->newest = c;
}

static void take_out(struct conn *c)
{
    struct place *at = &c->place;
    *(at->older ? &at->older->place.newer : &at->peer->oldest) = at->newer;
    *(at->newer ? &at->newer->place.older : &at->peer->newest) = at->older;
    *at = (struct place){0};
}

static void enter(struct places *p, struct conn *c)
{
    struct peer *peer = find_or_add(p, conn_address(c));
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
    struct peer *peer = c->place.peer;
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
    struct peer *peer = c->place.peer;
    if (!peer)
        return;
    take_out(c);
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

static struct conn *pick_waiting(struct http_server *s, const struct conn *spared)
{
    const struct places *p = &s->waiting;
    const uint32_t own = spared && spared->place.peer ? spared->place.peer->n : UINT32_MAX;
    int looked_at = 0;
    for (uint32_t n = p->most; n > 0; n--)
        for (struct peer *peer = p->by_n[n].first; peer; peer = peer->next) {
            struct conn *c = pick(peer, spared, n > own);
            if (c || ++looked_at == PEERS_LOOKED_AT)
                return c;
        }
    return NULL;
}

/* ---- of those that are held ---- */

static bool has_moved(struct conn *c)
{
    return c->state == CONN_FLUSHING ? conn_answer_moved(c) : has_unread(c);
}

/* The one that has not moved for longest, if that is so long; NULL: none. Those that turn out to
 * have moved go behind the others, so that they are in nobody's way the next time. */
static struct conn *longest_still(struct peer *peer, uint64_t still_ms, int *looks)
{
    const uint64_t now_ms = uv_now(peer->oldest->deadline.loop);
    while (*looks > 0 && now_ms - peer->oldest->place.since_ms >= still_ms) {
        struct conn *c = peer->oldest;
        --*looks;
        if (!has_moved(c))
            return c;
        places_hold(c);
    }
    return NULL;
}

static uint32_t n_of(const struct places *p, uint64_t address)
{
    const struct peer *peer = find(p, address);
    return peer ? peer->n : 0;
}

static struct conn *pick_held(struct http_server *s, struct conn *spared)
{
    const struct places *p = &s->held;
    const uint64_t address = spared ? conn_address(spared) : 0;
    const uint32_t own = spared ? n_of(&s->waiting, address) + n_of(p, address) : 1;
    int looks = HELD_LOOKED_AT;
    for (uint32_t n = p->most; n > own && looks > 0; n--)
        for (struct peer *peer = p->by_n[n].first; peer && looks-- > 0; peer = peer->next) {
            struct conn *c = longest_still(peer, STILL_MS, &looks);
            if (c)
                return c;
            if (n > s->limits.max_connections / 2)
                return peer->oldest;
        }
    struct peer *mine = find(p, address);
    looks = CONNS_LOOKED_AT;
    return mine && mine->n > 1 ? longest_still(mine, OWN_STILL_MS, &looks) : NULL;
}

bool places_make(struct http_server *s, struct conn *spared)
{
    struct conn *c = pick_waiting(s, spared);
    if (!c)
        c = pick_held(s, spared);
    if (!c)
        return false;
    c->reset = c->state == CONN_FLUSHING; /* the kernel is not to keep what nobody reads */
    conn_abort(c);
    return true;
}
