#include "common/http/server/make_place.h"

#include <sys/ioctl.h>

#include "common/http/conn/address.h"
#include "common/http/conn/lifecycle.h"
#include "common/http/conn/places.h"
#include "common/http/conn/state.h"
#include "common/http/conn/timer.h"

enum { CONNS_LOOKED_AT = 16, PEERS_LOOKED_AT = 4, HELD_LOOKED_AT = 64 };
enum { HALF_MS = 1000, STILL_MS = 1000, OWN_STILL_MS = 5000 };

/* Returns true when bytes have arrived that were not read yet. They may begin or complete a
 * request. */
static bool has_unread(const struct conn *c)
{
    uv_os_fd_t fd;
    int n = 0;
    return uv_fileno(&c->io.handle, &fd) == 0 && ioctl(fd, FIONREAD, &n) == 0 && n > 0;
}

/* Picks the connection of an address to close, or NULL. With `at_once`, incomplete headers get
 * no second to become complete. */
static struct conn *pick(const struct http_peer *peer, const struct conn *spared, bool at_once)
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
        for (struct http_peer *peer = p->by_n[n].first; peer; peer = peer->next) {
            struct conn *c = pick(peer, spared, n > own);
            if (c || ++looked_at == PEERS_LOOKED_AT)
                return c;
        }
    return NULL;
}

static bool has_moved(struct conn *c)
{
    return c->state == CONN_FLUSHING ? conn_answer_moved(c) : has_unread(c);
}

/* Returns the connection that has not moved for the longest time, if that time is at least
 * still_ms; otherwise NULL. Connections that have moved are put at the end of the list, so that
 * they are not checked first the next time. */
static struct conn *longest_still(struct http_peer *peer, uint64_t still_ms, int *looks)
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
    const struct http_peer *peer = places_find(p, address);
    return peer ? peer->n : 0;
}

static struct conn *pick_held(struct http_server *s, struct conn *spared)
{
    const struct places *p = &s->held;
    const uint64_t address = spared ? conn_address(spared) : 0;
    const uint32_t own = spared ? n_of(&s->waiting, address) + n_of(p, address) : 1;
    int looks = HELD_LOOKED_AT;
    for (uint32_t n = p->most; n > own && looks > 0; n--)
        for (struct http_peer *peer = p->by_n[n].first; peer && looks-- > 0; peer = peer->next) {
            struct conn *c = longest_still(peer, STILL_MS, &looks);
            if (c)
                return c;
            if (n > s->limits.max_connections / 2)
                return peer->oldest;
        }
    struct http_peer *mine = places_find(p, address);
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
    /* the kernel need not keep bytes that the client does not read */
    c->reset = c->state == CONN_FLUSHING;
    conn_abort(c);
    return true;
}
